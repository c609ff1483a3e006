"""Chapter 4: GPT-2's forward pass written by hand.

    python examples/ch04/gpt2_from_scratch.py                                    # the most probable next tokens
    python examples/ch04/gpt2_from_scratch.py --prompt "Good night, good night"

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
from examples.ch02.model import load_for, run
from examples.ch03.tokens import decode, ids_for, shown
from examples.lab.script import BadInput, Parser, answer, command, table

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
    """Logits [B, T, V] of the last stream x [B, T, d], or of some of its positions, x[:, -1:] say: each is computed alone."""
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
        # minus infinity takes the hidden score's place; to add it would give the same, and make one more tensor
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


# ------------------------------------------------------------------------------------------------------------- the next token

PROMPT = "Good morrow, my"


def next_tokens(model, ids, count=5):
    """The `count` most probable next tokens after `ids` [1, T]: [{id, piece, probability}], the lower id first on a tie."""
    probabilities = torch.softmax(run(model, ids)[0, -1].double(), dim=-1)  # [V]
    order = torch.argsort(probabilities, descending=True, stable=True)[:count].tolist()
    pieces = [decode([i], model) if model.tokenizer else None for i in order]
    return [{"id": i, "piece": p, "probability": probabilities[i].item()} for i, p in zip(order, pieces, strict=True)]


def next_token_table(rows):
    """Text of the rows of `next_tokens`."""
    cells = [["n/a" if r["piece"] is None else repr(r["piece"]), r["id"], f"{r['probability']:.2%}"] for r in rows]
    return table(["next token", "id", "probability"], cells)


def options():
    """The script's argument parser."""
    parser = Parser(prog="gpt2_from_scratch.py", description=__doc__, keys=__file__)
    return parser.add("model", "dtype", "device", "prompt", "threads", "seed", "json")


@command
def main(argv=None):
    """Print the most probable next tokens after a prompt."""
    args = options().parse_args(argv)
    model = load_for(args)
    ids = ids_for(args, model, 10, PROMPT)

    def report(values):
        rows = values["next_tokens"]
        share = sum(r["probability"] for r in rows)
        end = f"These {len(rows)} of {model.config.vocab_size:,} tokens hold {share:.1%} of the probability."
        return f"{args.model}: {shown(ids, model)}, {ids.shape[1]} tokens\n\n{next_token_table(rows)}\n\n{end}"

    answer(args, {"next_tokens": next_tokens(model, ids)}, report)


if __name__ == "__main__":
    sys.exit(main())
