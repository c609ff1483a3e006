"""How configs write down their rotary positions, in two spellings: read into one `Rope`, or refused by name."""

from examples.ch02.config import Rope
from examples.lab.script import BadInput

ROPE_KINDS = ("default", "linear", "llama3")


def rope_from(values, where, kinds=ROPE_KINDS, theta=10000.0):
    """The Rope that a config means: `rope_parameters` (transformers 5), or `rope_theta` with `rope_scaling` (transformers 4).

    Both may stand there when they agree. Nothing that is there is passed over. kinds: those that the family knows; theta: its
    own where the config names none.
    """
    blocks = [values[name] for name in ("rope_parameters", "rope_scaling") if values.get(name) not in (None, {})]
    if not all(isinstance(block, dict) for block in blocks):
        raise BadInput(f"{where}: rope_parameters or rope_scaling is no table; correct config.json")
    top = values.get("rope_theta")
    known = {"rope_theta": theta if top is None else top}
    original = values.get("original_max_position_embeddings")
    if any(original is not None and block.get("original_max_position_embeddings", original) != original for block in blocks):
        raise BadInput(f"{where}: original_max_position_embeddings stands there twice and differs; correct one of them")
    known["original_max_position_embeddings"] = values.get("max_position_embeddings") if original is None else original
    blocks = blocks or [{}]
    found = [_rope(known | {k: v for k, v in b.items() if k != "rope_theta" or v is not None}, where, kinds) for b in blocks]
    if any(rope != found[0] for rope in found) or (top is not None and top != found[0].theta):
        raise BadInput(
            f"{where}: its spellings of the rope differ (rope_parameters, rope_theta, rope_scaling); correct one of them"
        )
    return found[0]


_LLAMA3 = {"factor": "factor", "low": "low_freq_factor", "high": "high_freq_factor"}
_YARN = {"factor": "factor", "fast": "beta_fast", "slow": "beta_slow", "mscale": "mscale", "mscale_all": "mscale_all_dim"}
_OPTIONAL = {"fast": 32.0, "slow": 1.0, "mscale": 0.0, "mscale_all": 0.0}  # of yarn
_ORIGINAL = {"original_positions": "original_max_position_embeddings"}
_ROPE_FIELDS = {"default": {}, "linear": {"factor": "factor"}, "llama3": _LLAMA3 | _ORIGINAL, "yarn": _YARN | _ORIGINAL}


def _rope(block, where, kinds):
    """One Rope of a table in either spelling, `rope_type` or the older `type`."""
    spelt = [block[name] for name in ("rope_type", "type") if block.get(name) is not None]
    kind = spelt[0] if spelt else "default"
    if not isinstance(kind, str) or kind not in kinds:
        raise BadInput(f"{where}: the rope type {kind!r} is not known here; known are {', '.join(kinds)}")
    names = {"theta": "rope_theta"} | _ROPE_FIELDS[kind]
    unknown = sorted(set(block) - {"rope_type", "type", "original_max_position_embeddings"} - set(names.values()))
    if unknown:
        raise BadInput(f"{where}: the rope has {unknown[0]!r}, which type {kind!r} does not take; correct config.json")
    numbers = {ours: block.get(theirs, _OPTIONAL.get(ours)) for ours, theirs in names.items()}
    for name, value in numbers.items():
        may_be_0 = name in ("mscale", "mscale_all") and value == 0
        if type(value) not in (int, float) or not (may_be_0 or 0 < value < 1e300):  # JSON has integers that no float holds
            raise BadInput(f"{where}: the rope's {names[name]} is {repr(value)[:40]}, not a number above 0; correct config.json")
        if name == "original_positions" and (type(value) is not int or value < 1):
            raise BadInput(f"{where}: the rope's {names[name]} is {repr(value)[:40]}, not a whole number; correct config.json")
    if kind == "llama3" and numbers["low"] >= numbers["high"]:
        raise BadInput(f"{where}: the rope's low_freq_factor is not below its high_freq_factor; correct config.json")
    if kind == "yarn" and numbers["theta"] <= 1:
        raise BadInput(f"{where}: the rope's rope_theta is {numbers['theta']}, and yarn needs more than 1; correct config.json")
    return Rope(kind=kind, **{name: type(getattr(Rope(), name))(value) for name, value in numbers.items()})
