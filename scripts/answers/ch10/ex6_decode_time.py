"""A decode step's FLOPs and shares."""


def step_flops(S, new, d, f, L, V):
    return {
        "projections": 2 * 4 * d * d * new * L,
        "scores": 2 * 2 * new * S * d * L,
        "feed_forward": 2 * 2 * d * f * new * L,
        "head": 2 * d * V,
    }


def shares(parts):
    whole = sum(parts.values())
    ranked = sorted(parts, key=lambda name: (-parts[name], name))
    return {name: 100 * parts[name] / whole if whole else 0.0 for name in ranked}
