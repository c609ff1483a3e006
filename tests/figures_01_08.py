"""What figures 1 to 8 must show: the numbers of chapters 3, 4 and 14, by their own functions."""

from dataclasses import replace
from functools import cache

import torch

from examples.ch02.layout import tensor_shapes, weight_shapes
from examples.ch02.model import PUBLISHED, load, load_config
from examples.ch03.same_id import SENTENCE
from examples.ch03.tokens import decode, encode
from examples.ch04.cost_model import parameter_count
from examples.ch04.gpt2_from_scratch import PROMPT, Trace, attention, causal_mask, forward, mlp, no_trace
from examples.ch14.norm_depth import depth_config, norms_on_the_path
from scripts.records import read_results, results_path
from scripts.web_edition.figure_data import TOY_ROWS, TOY_WRITES
from tests.support import ROOT
from tests.web_support import figure, fixed, integer

WORDS = SENTENCE.split()


@cache
def model():
    """The embedded model."""
    return load("embedded")


def numbered(key, row):
    """{key0: text, key1: text, ...} of a row of integers."""
    return {f"{key}{i}": str(x) for i, x in enumerate(row)}


@figure("lookup", literals=("SmolLM2",))
def lookup(position):
    """Figure 1: ids of a toy table and the rows that they select; the ids of two tokenizers."""
    table = {word: id for id, word in enumerate(sorted(set(WORDS)))}
    ids = [table[word] for word in WORDS]
    twins = [i for i, id in enumerate(ids) if id == ids[position] and i != position]
    rows = torch.tensor(TOY_ROWS)[torch.arange(len(table))]  # [4, 4]
    record = read_results(results_path(ROOT, "ch03"))["ch03.leading-blank@smollm2"]["values"]
    real = [encode(SENTENCE, model())[0].tolist(), [piece["id"] for piece in record["pieces"]]]
    return {
        **{"position": str(position), "id": str(ids[position]), **({"twin": str(twins[0])} if twins else {})},
        **numbered("position", range(len(WORDS))),
        **numbered("id", ids),
        **numbered("row", range(len(table))),
        **{f"row{i}.{j}": signed(fixed(x, 1)) for i, row in enumerate(rows.tolist()) for j, x in enumerate(row)},
        **numbered("tokens", map(len, real)),
        **{f"token{k}.{i}": str(id) for k, found in enumerate(real) for i, id in enumerate(found)},
    }


@cache
def whole_pass():
    """The trace of a pass of the embedded model over chapter 4's prompt, whose tensors have the shapes that figure 2 names."""
    found = Trace("embedding", "residual", "logits")
    forward(encode(PROMPT, model()), model().weights, model().config, trace=found)
    return found


@figure("stages", literals=("GPT-2",))
def stages(stage, positions):
    """Figure 2: sizes of the tensors of a pass, and the probability of its best next token."""
    found = whole_pass()
    _, tokens, width = found["embedding", None].shape
    logits = found["logits", None][0]  # [T, V]
    return {
        "stage": str(stage),
        "tokens": integer(tokens),
        "width": integer(width),
        "layers": integer(sum(point == "residual" for point, _ in found)),
        "vocabulary": integer(logits.shape[1]),
        "chance": fixed(100 * torch.softmax(logits[-1].double(), dim=-1).max().item(), 1),
        "next": decode(logits[-1].argmax(), model()).replace(" ", "␣"),
    }


@figure("layers", literals=("GPT-2", "12", "24", "36", "48", "100", "200", "300", "400"))  # the marks of two axes
def layers(layers):
    """Figure 3: GPT-2's parameters at another depth."""
    config = load_config("gpt2")
    total, own, outside, one = (parameter_count(replace(config, n_layer=n))["total"] for n in (layers, config.n_layer, 0, 1))
    return {
        "layers": str(layers),
        "own": str(PUBLISHED["gpt2"]["n_layer"]),
        "block": integer(one - outside),
        "outside": integer(outside),
        "inside": integer(total - outside),
        "total": integer(total),
        "ratio": fixed(total / own, 2),
    }


def signed(x):
    """A number with the minus sign that the page writes."""
    return str(x).replace("-", "−")  # noqa: RUF001 - the minus sign is meant


@figure("add-or-replace")
def add_or_replace(move, blocks):
    """Figure 4: a stream to which blocks add, as chapter 4's `block` does, or which they replace."""
    written = torch.tensor(TOY_WRITES)[: blocks + 1]  # [blocks + 1, 4]
    stream = written[0]
    for added in written[1:]:
        stream = stream + added if move == "add" else added
    gone = blocks if move == "replace" else 0
    return {
        **{"blocks": str(blocks), "slots": str(len(stream)), "wrote": str(blocks + 1)},
        "gone": str(gone),
        **{f"block{i}": str(i) for i in range(1, blocks + 1)},
        **{f"wrote{i}.{j}": signed(x) for i, row in enumerate(written.tolist()) for j, x in enumerate(row)},
        **{f"stream{j}": signed(x) for j, x in enumerate(stream.tolist())},
    }


@cache
def block_parts():
    """[parameters] of the six steps of a block of GPT-2, from chapter 2's table of tensors."""
    sizes = {name: torch.Size(shape).numel() for name, shape in tensor_shapes(load_config("gpt2")).items()}
    parts = [sum(n for name, n in sizes.items() if name.startswith(f"h.0.{part}.")) for part in ("ln_1", "attn", "ln_2", "mlp")]
    return [*parts[:2], 0, *parts[2:], 0]


@figure("block", literals=("GPT-2",))
def block(step):
    """Figure 5: what each step of a block stores."""
    config, parts = load_config("gpt2"), block_parts()
    return {
        **{"step": str(step), "width": integer(config.n_embd), "inner": integer(config.inner_width)},
        **{"here": integer(parts[step - 1]), "all": integer(sum(parts))},
        **{f"part{i}": integer(n) for i, n in enumerate(parts) if n},
    }


@cache
def positions_read(mask, sublayer):
    """[T]: of how many positions' inputs each position's output depends in one sublayer of the embedded model: each is changed."""
    T, config, weights = len(WORDS), model().config, model().weights
    x = torch.randn(1, T, config.n_embd, generator=torch.Generator().manual_seed(0))  # [1, T, d]
    seen = causal_mask(T, T) if mask else None

    def made(x):
        if sublayer == "attention":
            return attention(x, weights, config, 0, seen, no_trace)
        return mlp(x, weights, config, 0, no_trace)

    depends = torch.zeros(T, dtype=torch.int64)
    for j in range(T):
        other = x.clone()
        other[:, j] = other[:, j].flip(-1)
        depends += (made(x) != made(other)).any(-1)[0]
    return depends.tolist()


@figure("reads", literals=("GPT-2",))
def reads(position, mask):
    """Figure 6: how many positions each sublayer reads, found by changing one after the other."""
    return {
        **{"position": str(position), "count": str(len(WORDS)), **numbered("position", range(len(WORDS)))},
        "attention": str(positions_read(mask, "attention")[position]),
        "forward": str(positions_read(mask, "feed_forward")[position]),
    }


@figure("width", literals=("4 d²", "8 d²"))
def width(width):
    """Figure 7: a block's weights by sublayer, and all of its parameters."""
    config = replace(load_config("gpt2"), n_embd=width, n_head=width // 64)  # heads as wide as GPT-2's
    sizes = {name: torch.Size(shape) for name, shape in tensor_shapes(config).items() if name.startswith("h.0.")}

    def count(part, matrices):
        return sum(s.numel() for name, s in sizes.items() if part in name and (len(s) == 2 or not matrices))

    matrices = {part: count(part, True) for part in ("attn", "mlp")}
    whole = {part: count(part, False) for part in ("attn", "mlp", "ln_")}
    inner, every = sum(matrices.values()), sum(whole.values())
    return {
        **{"width": integer(width), "square": integer(sizes["h.0.attn.c_proj.weight"].numel())},
        **{"attention": integer(matrices["attn"]), "forward": integer(matrices["mlp"]), "matrices": integer(inner)},
        **{"attentionShare": fixed(100 * matrices["attn"] / inner, 1), "forwardShare": fixed(100 * matrices["mlp"] / inner, 1)},
        **{"rest": integer(every - inner), "all": integer(every)},
        **{"attentionWhole": fixed(100 * whole["attn"] / every, 2), "forwardWhole": fixed(100 * whole["mlp"] / every, 2)},
        "normsWhole": fixed(100 * whole["ln_"] / every, 2),
    }


@figure("norms")
def norms(place, layers):
    """Figure 8: norms on the stream's own path, and on branches."""
    config = depth_config(place, layers)
    path = norms_on_the_path(config)
    norms = sum(name.endswith("norm.weight") for name in weight_shapes(config))
    return {
        **{"layers": str(layers), "blocks": str(path - config.final_norm)},
        **{"path": str(path), "branches": str(norms - path)},
    }
