"""Chapter 4: GPT-2's forward pass written by hand, and what it costs, from its config alone.

    python examples/ch04/gpt2_from_scratch.py             # the tour
    python examples/ch04/gpt2_from_scratch.py count       # also: flops, shapes, compare, mask, residual, time; each takes --help

The commands that take --model take any family, each by the forward pass of its own program; the cost model here is GPT-2's.

Shapes: B batch, T positions, d model width, h heads, dh head width (d = h dh), f feed-forward width, V vocabulary, L layers;
S positions that are seen, T or with chapter 10's cache more, and g heads with keys and values, in a GPT-2 all h.
The pass is matmul, softmax, tanh and arithmetic on a dict of tensors by Hugging Face's names; it is the oracle that every
faster program in this book is compared with.
"""

import math
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor

from examples.ch02.config import GPT2Config
from examples.lab.script import BadInput, command

# -------------------------------------------------------------------------------------------------------- the forward pass
# What is done in place is done to a tensor that the same function has just made: never to an input, a weight or a traced tensor.


def forward(ids: Tensor, weights: dict, config: GPT2Config, causal: bool = True, trace=None) -> Tensor:
    """Logits [B, T, V] of `ids` [B, T]: at each position, the score of every token as the next one.

    weights: {name: tensor} as chapter 2 loads them; their dtype and device are those of the computation.
    causal: False lets every position see all others, to show what the mask is for.
    trace: called as trace(point, layer, tensor) at each of POINTS, layer None outside the blocks; a `Trace`, say. It observes, and
    may keep the tensors.
    Raises BadInput for ids that are not integers [B, T] within the vocabulary, none, or more than n_positions.
    """
    check_ids(ids, config)
    T = ids.shape[1]
    at = torch.arange(T, device=ids.device)  # [T], the positions
    mask = causal_mask(T, T, ids.device) if causal else None
    x = pass_over(ids, weights, config, at, mask, trace)  # [B, T, d]
    return unembed(x, weights, config, trace)  # [B, T, V]


def causal_mask(T: int, S: int, device="cpu") -> Tensor:
    """[T, S] for T new positions that end a text of S: row i is 0 where position i may look, at itself and at the S - T + i before
    it, and minus infinity where it may not, which softmax makes a weight of 0."""
    return torch.full((T, S), -math.inf, device=device).triu(S - T + 1)


def pass_over(ids: Tensor, weights: dict, config: GPT2Config, at: Tensor, mask: Tensor | None, trace=None, cache=None) -> Tensor:
    """The stream [B, T, d] after the last layer, not yet normalised, of `ids` [B, T] at positions `at` [T].

    mask [T, S]: who sees whom, as `causal_mask` has it; None: everyone sees all. trace: as in `forward`. cache: chapter 10's, which
    keeps what `new_cache` made room for, so that S positions are seen; without one S = T.
    """
    trace = no_trace if trace is None else trace
    x = weights["wte.weight"][ids] + weights["wpe.weight"][at]  # [B, T, d]
    trace("embedding", None, x)
    for layer in range(config.n_layer):
        x = block(x, weights, config, layer, mask, trace, cache)  # [B, T, d]
    return x


def unembed(x: Tensor, weights: dict, config: GPT2Config, trace=None) -> Tensor:
    """Logits [B, T, V] of the last stream x [B, T, d], or of some of its positions, x[:, -1:] say: no position needs another."""
    trace = no_trace if trace is None else trace
    x = layer_norm(x, weights, "ln_f", config)  # [B, T, d]
    trace("final_norm", None, x)
    logits = x @ weights["wte.weight" if config.tie_word_embeddings else "lm_head.weight"].T  # [B, T, V]
    trace("logits", None, logits)
    return logits


def new_cache(config: GPT2Config, batch: int, capacity: int, **like) -> list[tuple[Tensor, Tensor]]:
    """Room for the keys and the values of `capacity` positions, [B, h, capacity, dh] each, a pair for each layer.

    like: dtype and device. Chapter 10 fills it.
    """
    shape = (batch, config.n_head, capacity, config.head_width)
    return [(torch.zeros(shape, **like), torch.zeros(shape, **like)) for _ in range(config.n_layer)]


def block(x: Tensor, weights: dict, config: GPT2Config, layer: int, mask: Tensor | None, trace, cache=None) -> Tensor:
    """One layer: two sublayers, each of which reads a normalised copy of the stream x [B, T, d] and adds to the stream."""
    normed = layer_norm(x, weights, f"h.{layer}.ln_1", config)  # [B, T, d]
    trace("norm_1", layer, normed)
    added = attention(normed, weights, config, layer, mask, trace, cache)  # [B, T, d]
    trace("attention", layer, added)
    x = x + added  # [B, T, d]
    trace("residual_mid", layer, x)
    normed = layer_norm(x, weights, f"h.{layer}.ln_2", config)  # [B, T, d]
    trace("norm_2", layer, normed)
    added = mlp(normed, weights, config, layer, trace)  # [B, T, d]
    trace("mlp", layer, added)
    x = x + added  # [B, T, d]
    trace("residual", layer, x)
    return x


def attention(x: Tensor, weights: dict, config: GPT2Config, layer: int, mask: Tensor | None, trace, cache=None) -> Tensor:
    """What attention adds to the stream [B, T, d]: the one place where positions meet."""
    B, T, d = x.shape
    qkv = linear(x, weights, f"h.{layer}.attn.c_attn")  # [B, T, 3d]
    q, k, v = qkv.view(B, T, 3, config.n_head, -1).permute(2, 0, 3, 1, 4)  # each [B, h, T, dh]
    trace("q", layer, q)
    trace("k", layer, k)
    trace("v", layer, v)
    if cache is not None:
        k, v = cache.extend(layer, k, v)  # each [B, h, S, dh]: those of earlier calls, then these T
    if config.reorder_and_upcast_attn:
        q, k = _wide(q), _wide(k)
    scores = (q * attention_scale(config, layer)) @ k.transpose(-1, -2)  # [B, h, T, S], and S = T without a cache
    if mask is not None:
        # the sum S + M of the text, in place; what is not 0 in the mask takes the score's place whatever the score was
        torch.where(mask == 0, scores, mask.to(scores.dtype), out=scores)  # [B, h, T, S]
    trace("scores", layer, scores)
    A = torch.softmax(scores, dim=-1).to(v.dtype)  # [B, h, T, S], each row sums to 1
    trace("A", layer, A)
    mixed = (A @ v).transpose(1, 2).reshape(B, T, d)  # [B, T, d], heads side by side
    return linear(mixed, weights, f"h.{layer}.attn.c_proj")  # [B, T, d]


def mlp(x: Tensor, weights: dict, config: GPT2Config, layer: int, trace) -> Tensor:
    """What the feed-forward network adds to the stream [B, T, d], at each position by itself."""
    inner = linear(x, weights, f"h.{layer}.mlp.c_fc")  # [B, T, f]
    hidden = ACTIVATIONS[config.activation_function](inner)  # [B, T, f]
    trace("hidden", layer, hidden)
    return linear(hidden, weights, f"h.{layer}.mlp.c_proj")  # [B, T, d]


def linear(x: Tensor, weights: dict, name: str) -> Tensor:
    """x @ W + b with W [in, out], as GPT-2's files store it."""
    y = x @ weights[f"{name}.weight"]  # [..., out]
    return y.add_(weights[f"{name}.bias"])


def layer_norm(x: Tensor, weights: dict, name: str, config: GPT2Config) -> Tensor:
    """Each position's vector with mean 0 and variance 1 over d, then a gain and a shift for each of its d entries.

    Ba, Kiros and Hinton, "Layer Normalization" (2016). Computed in float32 at least: squares of half precision overflow.
    """
    wide = _wide(x)  # [B, T, d]
    centred = wide - wide.mean(-1, keepdim=True)  # [B, T, d]
    variance = (centred * centred).mean(-1, keepdim=True)  # [B, T, 1]
    centred.mul_(torch.rsqrt(variance + config.layer_norm_epsilon))
    return centred.mul_(weights[f"{name}.weight"]).add_(weights[f"{name}.bias"]).to(x.dtype)


def attention_scale(config: GPT2Config, layer: int) -> float:
    """The factor on q k: 1 / sqrt(dh), so that scores do not grow with the head, and 1 / (layer + 1) where a config asks for it."""
    scale = config.head_width**-0.5 if config.scale_attn_weights else 1.0
    return scale / (layer + 1) if config.scale_attn_by_inverse_layer_idx else scale


def gelu_new(x: Tensor) -> Tensor:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the form of GELU that GPT-2 was trained with.

    Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2.
    """
    y = x * x  # the cube by multiplication: a general power is far slower
    y.mul_(0.044715).add_(1).mul_(x).mul_(math.sqrt(2 / math.pi))
    return y.tanh_().add_(1).mul_(x).mul_(0.5)


def gelu(x: Tensor) -> Tensor:
    """0.5 x (1 + erf(x / sqrt 2)), GELU itself; up to 4.73e-4 away from gelu_new."""
    return torch.erf(x * math.sqrt(0.5)).add_(1).mul_(x).mul_(0.5)


def relu(x: Tensor) -> Tensor:
    """x where it is above 0, and 0 elsewhere."""
    return x.clamp(min=0)


def silu(x: Tensor) -> Tensor:
    """x times the logistic function of x. Hendrycks and Gimpel (2016), section 2."""
    return x / (1 + torch.exp(-x))


ACTIVATIONS = {f.__name__: f for f in (gelu_new, gelu, relu, silu, torch.tanh)}  # by the names that chapter 2 reads

# The trace points in the order of the pass, and their shapes; S = T without a cache, and g = h in a GPT-2. residual_mid is the
# stream after attention, residual the stream after the layer; attention and mlp are what the sublayers add to it, so embedding +
# all of both = the last residual.
LAYER_POINTS = {
    **{"norm_1": "B T d", "q": "B h T dh", "k": "B g T dh", "v": "B g T dh", "scores": "B h T S", "A": "B h T S"},
    **{"attention": "B T d", "residual_mid": "B T d", "norm_2": "B T d", "hidden": "B T f", "mlp": "B T d", "residual": "B T d"},
}
POINTS = {"embedding": "B T d", **LAYER_POINTS, "final_norm": "B T d", "logits": "B T V"}


class Trace(dict):
    """A trace that keeps what it is shown: trace[point, layer] is the tensor, trace[point, None] one outside the layers.

    points: only these of POINTS; by default all.
    """

    def __init__(self, *points: str):
        super().__init__()
        self.points = points or tuple(POINTS)

    def __call__(self, point: str, layer: int | None, tensor: Tensor) -> None:
        if point in self.points:
            self[point, layer] = tensor


def no_trace(point: str, layer: int | None, tensor: Tensor) -> None:
    pass


def _wide(x):
    """x in float32, or in float64 where it is that already."""
    return x if x.dtype == torch.float32 else x.to(torch.promote_types(x.dtype, torch.float32))


def check_ids(ids: Tensor, config) -> None:
    """Raise BadInput unless `ids` is an integer tensor [B, T], 1 <= T <= n_positions, of ids 0 to V - 1."""
    if not isinstance(ids, torch.Tensor) or ids.dtype not in (torch.int64, torch.int32):
        kind = ids.dtype if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise BadInput(f"ids are {kind}; give a tensor of int64 or int32")
    if ids.ndim != 2:
        raise BadInput(f"ids have shape {list(ids.shape)}; give [B, T], one row for each sequence")
    if ids.numel() == 0:
        raise BadInput(f"ids are empty, shape {list(ids.shape)}; give at least one row of one token")
    if ids.shape[1] > config.n_positions:
        raise BadInput(f"{ids.shape[1]} tokens are more than n_positions {config.n_positions}; give a shorter text")
    low, high = ids.min().item(), ids.max().item()
    if low < 0 or high >= config.vocab_size:
        bad = low if low < 0 else high
        raise BadInput(f"id {bad} is outside the vocabulary, 0 to {config.vocab_size - 1}; use this model's own tokenizer")


# ---------------------------------------------------------------------------------------------------------- the cost model


def parameter_count(config: GPT2Config) -> dict[str, int]:
    """{component: parameters, ..., "total"}, in closed form. Each number is one weight; a tied head is counted once.

    A layer has 4 d^2 + 4 d in attention, 2 d f + f + d in the feed-forward network, and 4 d in its two norms.
    """
    d, f, L, V = config.n_embd, config.inner_width, config.n_layer, config.vocab_size
    counts = {
        "token_embedding": V * d,
        "position_embedding": config.n_positions * d,
        "attention": L * (4 * d * d + 4 * d),
        "feed_forward": L * (2 * d * f + f + d),
        "norms": L * 4 * d + 2 * d,
        "output_projection": 0 if config.tie_word_embeddings else V * d,
    }
    return counts | {"total": sum(counts.values())}


def flops_per_token(config: GPT2Config, context: int) -> dict[str, int]:
    """{component: FLOPs, ..., "total"} of the matmuls for one output token that attends over `context` positions.

    A multiply-add is 2 FLOPs, so a matrix costs 2 a weight; q k and the sum over v cost 2 h dh = 2 d each for every position
    seen. Nothing is halved for the mask. Look-ups, norms, biases, softmax and GELU are not counted. The convention is that of
    Kaplan et al., "Scaling Laws for Neural Language Models" (2020), table 1, with the output projection counted too.
    Raises BadInput for a context outside 1 to n_positions.
    """
    if not 1 <= context <= config.n_positions:
        raise BadInput(f"context {context} is not within 1 to n_positions {config.n_positions}; give one that is")
    d, f, L = config.n_embd, config.inner_width, config.n_layer
    flops = {
        "attention_projections": L * 2 * 4 * d * d,
        "attention_scores_and_values": L * 4 * d * context,
        "feed_forward": L * 2 * 2 * d * f,
        "output_projection": 2 * d * config.vocab_size,
    }
    return flops | {"total": sum(flops.values())}


def flops_per_pass(config: GPT2Config, tokens: int, batch: int = 1, pairs: str = "full") -> dict[str, int]:
    """{component: FLOPs, ..., "total"} of one pass over [batch, tokens].

    pairs: "full" counts the whole T x T rectangle of query and key, which is what `forward` executes, masked or not; "causal"
    counts only the T (T + 1) / 2 visible ones, which is what the result needs. Raises BadInput like `flops_per_token`.
    """
    if pairs not in ("full", "causal"):
        raise BadInput(f"pairs is {pairs!r}; give full or causal")
    flops = {name: n * batch * tokens for name, n in flops_per_token(config, tokens).items() if name != "total"}
    if pairs == "causal":  # the mean number of visible positions is (T + 1) / 2
        flops["attention_scores_and_values"] = batch * config.n_layer * 4 * config.n_embd * tokens * (tokens + 1) // 2
    return flops | {"total": sum(flops.values())}


def tensor_table(config: GPT2Config, tokens: int, batch: int = 1, bytes_per_number: int = 4) -> list[dict]:
    """Every tensor that the pass over [batch, tokens] names: one dict(point, count, shape, bytes, growth, traced) each.

    count: how many the pass makes, 1 or L. bytes: of one. growth: how bytes grow with T, "T" or "T^2". traced: whether it is
    one of POINTS. Left out are temporaries within a line, in layer norm, GELU or softmax, none larger than what the line makes.
    Raises BadInput for tokens outside 1 to n_positions.
    """
    if not 1 <= tokens <= config.n_positions:
        raise BadInput(f"{tokens} tokens are not within 1 to n_positions {config.n_positions}; give as many as that")
    L, sizes = config.n_layer, {"B": batch, "T": tokens, "S": tokens, "d": config.n_embd, "3d": 3 * config.n_embd}
    sizes |= {"h": config.n_head, "g": config.kv_heads, "dh": config.head_width, "f": config.inner_width, "V": config.vocab_size}
    shapes = {"embedding": POINTS["embedding"], "mask": "T S"}
    for point, shape in LAYER_POINTS.items():  # with what the lines between them make
        shapes |= {"q": {"qkv": "B T 3d"}, "attention": {"mixed": "B T d"}, "hidden": {"inner": "B T f"}}.get(point, {})
        shapes[point] = shape
    shapes |= {point: POINTS[point] for point in ("final_norm", "logits")}
    return [
        {
            "point": point,
            "count": 1 if point in ("embedding", "mask", "final_norm", "logits") else L,
            "shape": [sizes[letter] for letter in shape.split()],
            "bytes": math.prod(sizes[letter] for letter in shape.split()) * (4 if point == "mask" else bytes_per_number),
            "growth": "T^2" if "T S" in shape else "T",
            "traced": point in POINTS,
        }
        for point, shape in shapes.items()
    ]


def options():
    """The script's argument parser."""
    from examples.ch04 import tour as commands

    return commands.options()


@command
def main(argv=None):
    """Run one of the chapter's commands; the tour when none is named."""
    from examples.ch04 import tour as commands

    commands.run(argv)


if __name__ == "__main__":
    sys.exit(main())
