"""Chapter 14: the ten choices that make a family of transformers: which option a config takes, and what it computes in words.

    python examples/ch14/ten_choices.py                          # who takes which option
    python examples/ch14/ten_choices.py --config mixtral-8x7b    # one config, line by line in the order of the pass

`choice_effects.py` says what each option costs, and `family_agreement.py` that the pass of each family is the library's.
"""

import sys
import textwrap
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.ch02.config import Config, Experts, Latent
from examples.ch14.configs import SOURCE, config_named, published
from examples.lab.script import Parser, answer, command, table

_ACTIVATIONS = {"gelu_new": "GELU, tanh form", "gelu": "GELU, exact", "silu": "SiLU"}
BASE = "llama-3-8b"
OPTIONS = (  # (choice, option, the fields of Config that make it from the base)
    ("normalisation", "layer norm", {"norm": "layer"}),
    ("normalisation", "RMS norm", {}),
    ("place of the norm", "pre", {}),
    ("place of the norm", "post", {"norm_place": "post", "final_norm": False}),
    ("place of the norm", "both", {"norm_place": "both"}),
    ("positions", "learned", {"positions": "learned"}),
    ("positions", "sinusoidal", {"positions": "sinusoidal"}),
    ("positions", "RoPE", {}),
    ("positions", "ALiBi", {"positions": "alibi"}),
    ("attention", "MHA", {"kv_heads": 32}),
    ("attention", "GQA", {}),
    ("attention", "MQA", {"kv_heads": 1}),
    ("attention", "MLA", {"latent": Latent(None, 512, 128, 64, 128)}),
    ("activation", "GELU, tanh form", {"activation": "gelu_new", "gated": False}),
    ("activation", "GELU, exact", {"activation": "gelu", "gated": False}),
    ("activation", "SiLU", {"gated": False}),
    ("activation", "gated SiLU", {}),
    ("activation", "gated GELU, tanh form", {"activation": "gelu_new"}),
    ("feed-forward", "dense", {}),
    ("feed-forward", "mixture of experts", {"experts": Experts(8, 2, 14336)}),
    ("output matrix", "tied", {"tie_word_embeddings": True}),
    ("output matrix", "untied", {}),
    ("biases", "present", {"biases": ("qkv", "o", "mlp")}),
    ("biases", "on q, k and v", {"biases": ("qkv",)}),
    ("biases", "absent", {}),
    ("window", "full", {}),
    ("window", "sliding", {"windows": (4096,) * 32}),
    ("window", "interleaved", {"windows": (4096, None) * 16}),
    ("q and k norm", "no", {}),
    ("q and k norm", "yes", {"qk_norm": True}),
)


def options_of(config: Config) -> dict[str, str]:
    """{choice: option}: which of the table's options a config takes in each of the ten choices."""
    act = _ACTIVATIONS.get(config.activation, config.activation)
    attention = "MLA" if config.latent else {1: "MQA", config.n_head: "MHA"}.get(config.kv_heads, "GQA")
    windows = set(config.windows) or {None}
    return {
        "normalisation": {"rms": "RMS norm", "layer": "layer norm"}[config.norm],
        "place of the norm": config.norm_place,
        "positions": {"rope": "RoPE", "alibi": "ALiBi"}.get(config.positions, config.positions),
        "attention": attention,
        "activation": f"gated {act}" if config.gated else act,
        "feed-forward": "mixture of experts" if any(map(config.has_experts, range(config.n_layer))) else "dense",
        "output matrix": "tied" if config.tie_word_embeddings else "untied",
        "biases": {("qkv", "o", "mlp"): "present", ("qkv",): "on q, k and v", (): "absent"}.get(
            config.biases, " and ".join(config.biases)
        ),
        "window": "full" if windows == {None} else "interleaved" if None in windows else "sliding",
        "q and k norm": "yes" if config.qk_norm else "no",
    }


def explain(config: Config) -> list[str]:
    """Which computation a config is, line by line in the order of the pass: a list of sentences."""
    chosen = options_of(config)
    lines = [
        f"{config.n_layer} layers of width {config.n_embd:,} on a vocabulary of {config.vocab_size:,}; made for up to "
        f"{config.n_positions:,} positions."
    ]
    start = "The stream starts as the token's row of the table"
    if config.embedding_scale != 1:
        start += f", times {config.embedding_scale:.6g}, the square root of the width"
    if config.positions == "learned":
        start += ", plus the position's row of a second, learned table"
    if config.positions == "sinusoidal":
        start += f", plus sines and cosines of the position, which are counted from {config.first_position} and stored nowhere"
    lines.append(start + (", and is then layer-normalised" if config.embedding_norm else "") + ".")
    gains = ", gains stored as what they differ from 1" if config.unit_gain else ""
    kind = f"{chosen['normalisation']} (epsilon {config.norm_eps:g}{gains})"
    where = {
        "pre": "each of the two sublayers reads a normalised copy of the stream and adds to the stream itself",
        "post": "each of the two sublayers reads the stream and adds to it, and the sum is normalised",
        "both": "each of the two sublayers reads a normalised copy, and what it adds is normalised before it is added",
    }[config.norm_place]
    final = "there is one more norm before the output matrix" if config.final_norm else "there is no norm before the output matrix"
    lines.append(f"{kind[0].upper()}{kind[1:]}: {where}; {final}.")
    lines += _explain_attention(config, chosen) + _explain_feed_forward(config, chosen)
    biases = {"present": "Every matrix of a layer has a bias", "absent": "No matrix has a bias"}
    lines.append(biases.get(chosen["biases"], f"Biases: {chosen['biases']}") + ".")
    head = (
        "The token's table, transposed, gives the logits" if config.tie_word_embeddings else "A matrix of its own gives the logits"
    )
    lines.append(head + (f", bent by tanh to stay within {config.logit_cap:g}" if config.logit_cap else "") + ".")
    return lines


def _explain_attention(config, chosen):
    if config.latent:
        m = config.latent
        queries = f"queries from a vector of {m.q_rank:,}, " if m.q_rank else ""
        lines = [
            f"Attention: MLA, {config.n_head} heads; {queries}keys and values from one of {m.kv_rank:,}; a query and a key have "
            f"{m.plain} numbers without position and {m.turned} that turn, the key's the same for all heads; a value has {m.value}."
        ]
    else:
        shared = "" if chosen["attention"] == "MHA" else f", each shared by {config.n_head // config.kv_heads} heads of queries"
        width = (
            ""
            if config.head_width * config.n_head == config.n_embd
            else f" ({config.n_head} x {config.head_width}, not the width {config.n_embd:,})"
        )
        kv = f"{config.kv_heads} of keys and values{shared}" if config.kv_heads > 1 else "one of keys and values, shared by all"
        lines = [f"Attention: {chosen['attention']}, {config.n_head} heads of {config.head_width} numbers{width}, {kv}."]
    if config.qk_norm:
        lines.append("Each head's query and key are RMS-normalised by themselves before they turn.")
    if config.positions == "rope":
        lines.append(_explain_rope(config))
    if config.positions == "alibi":
        lines.append("Positions: ALiBi, a slope for each head is taken from the score for every position of distance.")
    plain = config.query_width**-0.5
    scale = plain if config.score_scale is None else config.score_scale
    more = "" if abs(scale - plain) < 1e-12 else f", not 1 / sqrt({config.query_width}) = {plain:.6g}"
    cap = f", and bent by tanh to stay within {config.score_cap:g}" if config.score_cap else ""
    by_layer = ", and divided by the layer's number" if config.score_scale_by_layer else ""
    wide = "; they are of float32 even where weights are narrower" if config.wide_scores else ""
    lines.append(f"Scores are multiplied by {scale:.6g}{more}{by_layer}{cap}{wide}.")
    if chosen["window"] == "full":
        lines.append("A position sees itself and all before it.")
    else:
        w = next(w for w in config.windows if w)
        some = sum(x is not None for x in config.windows)
        which = "every layer" if some == config.n_layer else f"{some} of {config.n_layer} layers, the others see everything before"
        lines.append(f"A position sees {w:,} positions, itself included, in {which}.")
    return lines


def _explain_rope(config):
    def one(rope):
        extra = {"default": "", "linear": f", all frequencies divided by {rope.factor:g}"}.get(
            rope.kind, f", slow frequencies divided by {rope.factor:g} ({rope.kind})"
        )
        return f"theta {rope.theta:,.0f}{extra}"

    together = "neighbouring numbers" if config.interleaved else "numbers half a head apart"
    more = f"; in layers with a window {one(config.window_rope)}" if config.window_rope else ""
    return f"Positions: RoPE turns queries and keys, {together} together, {one(config.rope)}{more}."


def _explain_feed_forward(config, chosen):
    parts = 3 if config.gated else 2
    lines = []
    L, dense = config.n_layer, [i for i in range(config.n_layer) if not config.has_experts(i)]
    first = dense == list(range(len(dense)))
    if dense:
        which = f" in the first {len(dense)} layers" if first else f" in {len(dense)} of the {L} layers"
        which = which if len(dense) < L else ""
        lines.append(f"Feed-forward{which}: {chosen['activation']}, {parts} matrices, inner width {config.inner_width:,}.")
    if len(dense) < L:
        e = config.experts
        shared = f", and {e.shared} more for every token" if e.shared else ""
        soft = e.routing == "softmax"
        route = "a softmax over all" if soft else "a logistic score each, with a bias to choose by"
        route += ", the chosen ones renormalised" if e.renormalise else ""
        route += f", times {e.scale:g}" if e.scale != 1 else ""
        groups = f", from the best {e.best_groups} of {e.groups} groups" if e.groups > 1 else ""
        one = f"{e.count} experts ({chosen['activation']}, inner width {e.width:,})"
        after = "" if not dense else " after them" if first else " in the others"
        lines.append(f"Feed-forward{after}: {one}, {e.active} for each token{shared}; routed by {route}{groups}.")
    return lines


def users() -> dict[tuple[str, str], list[str]]:
    """{(choice, option): [model_type]}: which families take an option, by the published configurations kept here."""
    found = {}
    for name in published():
        config = config_named(name)
        for choice, option in options_of(config).items():
            kinds = found.setdefault((choice, option), [])
            if config.model_type not in kinds:
                kinds.append(config.model_type)
    return found


# ------------------------------------------------------------------------------------------------ the measurements, the tables


def measure():
    """Who takes which option of the ten choices, by the published configurations: {options: [{choice, option, families}]}."""
    used = users()
    return {"options": [{"choice": c, "option": o, "families": used.get((c, o), [])} for c, o, _ in OPTIONS]}


def measure_config(name):
    """Which computation a config is: its model_type, the option that it takes in each choice, and sentences, in `lines`.

    Raises BadInput for what is no config.
    """
    config = config_named(name)
    return {"config": name, "model_type": config.model_type, "options": options_of(config), "lines": explain(config)}


def report(values):
    """Text of {"choices": ...}, or of {"explain": ...}."""
    if "explain" in values:
        v = values["explain"]
        lines = [textwrap.fill(line, 100, subsequent_indent="  ") for line in v["lines"]]
        head = f"{v['config']}, model_type {v['model_type']}"
        return "\n".join([head, "", table(["choice", "option"], list(v["options"].items())), "", *lines])
    lines = ["Who takes which option, by the configurations kept here; other sizes may choose otherwise."]
    for choice in dict.fromkeys(r["choice"] for r in values["choices"]["options"]):
        lines += ["", choice]
        for r in (r for r in values["choices"]["options"] if r["choice"] == choice):
            text = f"  {r['option']:<23}" + (", ".join(r["families"]) or "none of these")
            lines.append(textwrap.fill(text, 100, subsequent_indent=" " * 25))
    taken = [r for r in values["choices"]["options"] if r["families"]]
    return "\n".join([*lines, "", f"{len(taken)} of {len(values['choices']['options'])} options have a family that takes them."])


def options():
    """The script's argument parser."""
    parser = Parser(prog="ten_choices.py", description=__doc__, keys=__file__)
    parser.add_argument("--config", default=None, metavar="NAME or FILE", help=f"explain {SOURCE}")
    return parser.add("json")


@command
def main(argv=None):
    """Print who takes which option, or what one config computes."""
    args = options().parse_args(argv)
    answer(args, {"choices": measure()} if args.config is None else {"explain": measure_config(args.config)}, report)


if __name__ == "__main__":
    sys.exit(main())
