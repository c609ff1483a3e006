"""Chapter 14: one forward pass for fifteen families, in which everything that differs between them is a field of `Config`.

    python examples/ch14/variants.py                        # the embedded GPT-2 by this pass: its most probable next tokens
    python examples/ch14/variants.py --model smollm2 --prompt "The capital of France is"

Shapes as in the Llama of this chapter: B batch, T positions, S positions that are seen, d width, h heads, g heads with keys and
values, dh head width, f feed-forward width, V vocabulary. Weights have Llama's names in Hugging Face's files, and where a family
has a tensor that Llama lacks, the name of the family that brought it (Gemma 2's norms, Qwen 3's norms of q and k, DeepSeek's
experts and latents); all matrices are [out, in]. Chapter 2's `families` says how each family's config and names come to this,
`ten_choices.py` which choices a config makes, and `family_agreement.py` holds every family beside transformers.
"""

import math
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor

from examples.ch02.config import NORMS, Config
from examples.ch02.families import PROGRAMS
from examples.ch02.model import general_form, load_for
from examples.ch03.tokens import ids_for, shown
from examples.ch04.gpt2_from_scratch import ACTIVATIONS, causal_mask, check_ids, next_tokens, no_trace
from examples.ch14 import llama_from_scratch as llama
from examples.ch14.llama_from_scratch import linear
from examples.lab.script import BadInput, Parser, answer, command

# -------------------------------------------------------------------------------------------------------- the forward pass


def forward(ids: Tensor, weights: dict, config: Config, causal: bool = True, trace=None) -> Tensor:
    """Logits [B, T, V] of `ids` [B, T]; arguments, points of the trace and errors as chapter 4's `forward`.

    causal=False: no mask at all, the windows' neither. A mixture's networks show no `hidden`, absorbed attention no q, k and v.
    """
    check_ids(ids, config)
    T = ids.shape[1]
    at = torch.arange(T, device=ids.device)  # [T], the positions
    mask = causal_mask(T, T, ids.device) if causal else None
    if not causal:  # windows so wide that they hide nothing: what else a layer has for having one stays
        config = replace(config, windows=tuple(window and 10**9 for window in config.windows))
    x = pass_over(ids, weights, config, at, mask, trace)  # [B, T, d]
    return unembed(x, weights, config, trace)  # [B, T, V]


def pass_over(ids: Tensor, weights: dict, config: Config, at: Tensor, mask: Tensor | None, trace=None, cache=None) -> Tensor:
    """The stream [B, T, d] after the last layer of `ids` [B, T] at positions `at` [T]; arguments as chapter 4's `pass_over`.

    A layer's window is cut out of the mask here.
    """
    trace = no_trace if trace is None else trace
    check_positions(at, config)
    x = embed(ids, weights, config, at)  # [B, T, d]
    trace("embedding", None, x)
    for layer in range(config.n_layer):
        x = block(x, weights, config, layer, at, mask, trace, cache)  # [B, T, d]
    return x


def new_cache(config: Config, batch: int, capacity: int, **like) -> list[tuple[Tensor, Tensor]]:
    """Room for what each layer keeps of `capacity` positions, as chapter 4's `new_cache`: keys and values of g heads; or of latent
    attention one short vector and one turned key; and of a layer with a window only as many positions as that."""
    m, room = config.latent, []
    heads, widths = (1, (m.kv_rank, m.turned)) if m else (config.kv_heads, (config.head_width, config.head_width))
    for layer in range(config.n_layer):
        kept = min(capacity, config.window(layer) or capacity)
        room.append(tuple(torch.zeros(batch, heads, kept, width, **like) for width in widths))
    return room


def check_positions(at, config):
    """Raise BadInput for positions [T] that a learned table does not have."""
    if config.positions == "learned" and not 0 <= int(at.min()) <= int(at.max()) < config.n_positions:
        raise BadInput(f"positions {int(at.min())} to {int(at.max())} are not all within the table of {config.n_positions}")


def embed(ids, weights, config, at):
    """The stream's start [B, T, d]: the token's row, scaled, with its position where that is something to add, then normalised."""
    x = weights["model.embed_tokens.weight"][ids]  # [B, T, d]
    if config.embedding_scale != 1:
        x = x * torch.tensor(config.embedding_scale, dtype=x.dtype)  # rounded to the model's dtype first, as Gemma's code does
    if config.positions == "learned":
        x = x + weights["model.embed_positions.weight"][at]  # [B, T, d]
    if config.positions == "sinusoidal":
        x = x + sinusoids(at + config.first_position, config.n_embd).to(x.dtype)  # [B, T, d]
    return norm(x, weights, "model.embed_norm", config) if config.embedding_norm else x


def unembed(x: Tensor, weights: dict, config: Config, trace=None) -> Tensor:
    """Logits [B, T, V] of the last stream x [B, T, d]."""
    trace = no_trace if trace is None else trace
    x = norm(x, weights, "model.norm", config) if config.final_norm else x  # [B, T, d]
    trace("final_norm", None, x)
    head = "model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"
    logits = capped(x @ weights[head].T, config.logit_cap)  # [B, T, V]
    trace("logits", None, logits)
    return logits


def block(x, weights, config, layer, at, mask, trace, cache=None):
    """One layer on the stream x [B, T, d]; where its norms stand is the choice `norm_place`."""
    before_1, after_1, before_2, after_2 = (part and f"model.layers.{layer}.{part}" for part in NORMS[config.norm_place])
    y = norm(x, weights, before_1, config)  # [B, T, d]
    trace("norm_1", layer, y)
    sublayer = attention if config.latent is None else absorbed_attention if config.latent.absorbed else latent_attention
    y = sublayer(y, weights, config, layer, at, mask, trace, cache)  # [B, T, d]
    x = joined(x, y, weights, after_1, config, layer, trace, ("attention", "residual_mid"))  # [B, T, d]
    y = norm(x, weights, before_2, config)  # [B, T, d]
    trace("norm_2", layer, y)
    y = (mixture if config.has_experts(layer) else mlp)(y, weights, config, f"model.layers.{layer}.mlp", trace, layer)  # [B, T, d]
    return joined(x, y, weights, after_2, config, layer, trace, ("mlp", "residual"))  # [B, T, d]


def joined(x, y, weights, after, config, layer, trace, points):
    """The stream x [B, T, d] with what a sublayer made, y: added, with a norm on y before ("both") or on the sum after ("post")."""
    y = norm(y, weights, after, config) if config.norm_place == "both" else y
    trace(points[0], layer, y)
    x = x + y if config.residual else y
    x = norm(x, weights, after, config) if config.norm_place == "post" else x
    trace(points[1], layer, x)
    return x


# --------------------------------------------------------------------------------------------------------------- attention


def attention(x, weights, config, layer, at, mask, trace, cache=None):
    """What attention adds [B, T, d]: h heads of queries, g of keys and values (g = h: MHA, g = 1: MQA, between: GQA)."""
    name = f"model.layers.{layer}.self_attn"
    q = heads(linear(x, weights, f"{name}.q_proj"), config.head_width)  # [B, h, T, dh]
    k = heads(linear(x, weights, f"{name}.k_proj"), config.head_width)  # [B, g, T, dh]
    v = heads(linear(x, weights, f"{name}.v_proj"), config.head_width)  # [B, g, T, dh]
    if config.qk_norm:  # each head's vector by itself, before it turns
        q, k = norm(q, weights, f"{name}.q_norm", config), norm(k, weights, f"{name}.k_norm", config)
    if config.positions == "rope":
        q, k = turned(q, config, layer, at), turned(k, config, layer, at)
    for point, tensor in (("q", q), ("k", k), ("v", v)):
        trace(point, layer, tensor)
    k, v = (k, v) if cache is None else cache.extend(layer, k, v)  # each [B, g, S, dh]
    return linear(attend(q, k, v, config, layer, at, mask, trace, cache), weights, f"{name}.o_proj")  # [B, T, d]


def latent_attention(x, weights, config, layer, at, mask, trace, cache=None):
    """MLA: keys and values are made from one short vector per position, which with one turned key is all that a cache holds.

    DeepSeek-AI, "DeepSeek-V2" (2024), section 2.1. A query and a key have a part without position and a part that turns; the key's
    turning part is one for all heads. The norms of the compressed vectors have an epsilon of their own, 1e-6.
    """
    name, m = f"model.layers.{layer}.self_attn", config.latent
    q_plain, q_turned, short, k_turned = latents(x, weights, config, layer, at)
    short, k_turned = (short, k_turned) if cache is None else cache.extend(layer, short, k_turned)  # now of S positions
    kv = heads(linear(short[:, 0], weights, f"{name}.kv_b_proj"), m.plain + m.value)  # [B, h, S, plain + value]
    k_plain, v = kv.split((m.plain, m.value), dim=-1)
    q = torch.cat([q_plain, q_turned], dim=-1)  # [B, h, T, plain + turned]
    k = torch.cat([k_plain, k_turned.expand(-1, config.n_head, -1, -1)], dim=-1)  # [B, h, S, plain + turned]
    for point, tensor in (("q", q), ("k", k), ("v", v)):
        trace(point, layer, tensor[:, :, -len(at) :])  # of the new positions
    return linear(attend(q, k, v, config, layer, at, mask, trace, cache), weights, f"{name}.o_proj")  # [B, T, d]


def absorbed_attention(x, weights, config, layer, at, mask, trace, cache=None):
    """`latent_attention` with nothing expanded: queries are taken to the short vectors, and the mixture of those to the values.

    q . (K s) = (K^T q) . s for a position's short vector s, so that one s serves all heads, as if it were MQA with heads of rank +
    turned numbers. The same function from the same cache; other FLOPs, since nothing is expanded for the S positions.
    """
    name, m = f"model.layers.{layer}.self_attn", config.latent
    q_plain, q_turned, short, k_turned = latents(x, weights, config, layer, at)
    short, k_turned = (short, k_turned) if cache is None else cache.extend(layer, short, k_turned)  # now of S positions
    expand = weights[f"{name}.kv_b_proj.weight"].unflatten(0, (config.n_head, -1))  # [h, plain + value, rank]
    to_keys, to_values = expand.split((m.plain, m.value), dim=1)  # [h, plain, rank], [h, value, rank]
    q = torch.cat([q_plain @ to_keys, q_turned], dim=-1)  # [B, h, T, rank + turned]
    k = torch.cat([short, k_turned], dim=-1)  # [B, 1, S, rank + turned]: all that a cache has to hold
    mixed = attend(q, k, short, config, layer, at, mask, trace, cache)  # [B, T, h rank]
    mixed = heads(mixed, m.kv_rank)  # [B, h, T, rank]
    values = (mixed @ to_values.transpose(1, 2)).transpose(1, 2).flatten(2)  # [B, T, h value]
    return linear(values, weights, f"{name}.o_proj")  # [B, T, d]


def latents(x, weights, config, layer, at):
    """Queries without position [B, h, T, plain] and turned [B, h, T, turned], short vectors [B, 1, T, rank], keys
    [B, 1, T, turned], one of each for all heads."""
    name, m = f"model.layers.{layer}.self_attn", config.latent
    if m.q_rank is None:
        q = linear(x, weights, f"{name}.q_proj")  # [B, T, h (plain + turned)]
    else:
        compressed = linear(x, weights, f"{name}.q_a_proj")  # [B, T, q rank]
        compressed = llama.rms(compressed, weights[f"{name}.q_a_layernorm.weight"])
        q = linear(compressed, weights, f"{name}.q_b_proj")  # [B, T, h (plain + turned)]
    q_plain, q_turned = heads(q, config.query_width).split((m.plain, m.turned), dim=-1)
    short, k_turned = linear(x, weights, f"{name}.kv_a_proj_with_mqa").split((m.kv_rank, m.turned), dim=-1)
    short = llama.rms(short, weights[f"{name}.kv_a_layernorm.weight"])
    return q_plain, turned(q_turned, config, layer, at), short[:, None], turned(k_turned[:, None], config, layer, at)


def attend(q, k, v, config, layer, at, mask, trace, cache=None):
    """The heads' mixtures of v, side by side [B, T, h value]: scores, cap, ALiBi, mask and window, softmax; k and v of g heads."""
    if config.wide_scores:
        q, k = q.to(torch.promote_types(q.dtype, torch.float32)), k.to(torch.promote_types(k.dtype, torch.float32))
    scale = config.query_width**-0.5 if config.score_scale is None else config.score_scale
    scale = scale / (layer + 1) if config.score_scale_by_layer else scale
    scores = capped(llama.by_group(q * scale, k.transpose(-1, -2)), config.score_cap)  # [B, h, T, S]
    back = at[:, None] - key_positions(at, k.shape[2], cache)  # [T, S]: how far back key j lies from query i
    if config.positions == "alibi":
        scores = scores - slopes(config.n_head).to(scores)[:, None, None] * back
    mask = windowed(mask, back, config.window(layer))
    if mask is not None:
        scores = torch.where(mask == 0, scores, mask.to(scores.dtype))  # [B, h, T, S]
    trace("scores", layer, scores)
    A = torch.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(v.dtype)  # [B, h, T, S]
    trace("A", layer, A)
    return llama.by_group(A, v).transpose(1, 2).flatten(2)  # [B, T, h value]


def key_positions(at, S, cache=None):
    """The positions [S] of the keys: those of the new queries `at` [T], and before them what the cache has of a text."""
    old = S - len(at)
    return at if old == 0 else torch.cat([torch.arange(cache.length - old, cache.length, device=at.device), at])


def windowed(mask, back, window):
    """The mask [T, S] with minus infinity also where a key lies `window` or more back: a window of W sees W positions, the query's
    own included. A layer that keeps only its window has fewer keys than the mask: the last ones."""
    mask = None if mask is None else mask[:, -back.shape[1] :]
    if window is None:
        return mask
    mask = torch.zeros(back.shape, device=back.device) if mask is None else mask
    return mask.masked_fill(back >= window, -math.inf)


def heads(x, width):
    """x [B, T, n width] as [B, n, T, width]."""
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


def turned(x, config, layer, at):
    """x [B, n, T, width] with its pairs turned by position; a layer with a window may have a rope of its own."""
    angles = llama.rotation(at, rope_of(config, layer), x.shape[-1], x.dtype)  # cos and sin, each [T, width]
    return llama.rotate_interleaved(x, angles) if config.interleaved else llama.rotate(x, angles)


def rope_of(config, layer):
    """The layer's rope: its own where it has a window and the family says so."""
    return config.window_rope if config.window_rope and config.window(layer) else config.rope


def slopes(n_head):
    """[h]: how fast each head's scores fall with distance; 2^(-8i/h) where h is a power of two, i from 1.

    Press, Smith and Lewis, "Train Short, Test Long" (2021), and their code for other numbers of heads: the slopes of the power of
    two below, then every other one of the power above.
    """
    power = 2 ** int(math.log2(n_head))
    steps = [8 * i / power for i in range(1, power + 1)] + [4 * i / power for i in range(1, 2 * (n_head - power), 2)]
    return torch.tensor([2.0**-step for step in steps], dtype=torch.float64)


def sinusoids(at, d):
    """[T, d] for positions `at` [T]: sines in the first half, cosines in the second, wavelengths from 2 pi to 10,000 of that.

    Vaswani et al. (2017), section 3.5, in tensor2tensor's layout, whose last frequency is exactly 1/10,000.
    """
    half = d // 2
    angles = at[:, None].float() * torch.exp(torch.arange(half, device=at.device) * (-math.log(10000) / (half - 1)))  # [T, d / 2]
    return torch.nn.functional.pad(torch.cat([angles.sin(), angles.cos()], dim=-1), (0, d % 2))


def capped(x, cap):
    """x bent so that it stays within -cap and cap, where there is a cap. Gemma 2 (2024), section 2."""
    return x if cap is None else cap * torch.tanh(x / cap)


# ------------------------------------------------------------------------------------------------- feed-forward and norms


def mlp(x, weights, config, name, trace=no_trace, layer=None):
    """One feed-forward network on x [B, T, d], gated or not."""
    act = ACTIVATIONS[config.activation]
    up = linear(x, weights, f"{name}.up_proj")  # [B, T, f]
    hidden = act(linear(x, weights, f"{name}.gate_proj")) * up if config.gated else act(up)  # [B, T, f]
    trace("hidden", layer, hidden)
    return linear(hidden, weights, f"{name}.down_proj")  # [B, T, d]


def mixture(x, weights, config, name, trace=no_trace, layer=None):  # called like `mlp`; its networks are not traced
    """The experts' weighted sum [B, T, d]. Every expert sees every token, most with weight 0: wasteful, and exact row by row."""
    shares = routing(x, weights, config, name)  # [B, T, E], `active` of them not 0
    out = mlp(x, weights, config, f"{name}.shared_experts") if config.experts.shared else torch.zeros_like(x)  # [B, T, d]
    for e in range(config.experts.count):
        out = out + shares[..., e : e + 1] * mlp(x, weights, config, f"{name}.experts.{e}")
    return out


def routing(x, weights, config, name):
    """The weight of every expert for every position [B, T, E].

    Mixtral (2024), section 2.1; DeepSeek-V3 (2024), section 2.1.2, where the bias balances the load and only chooses.
    """
    e = config.experts
    gate, sigmoid = weights[f"{name}.gate.weight"], e.routing == "sigmoid"
    logits = x.float() @ gate.float().T if sigmoid else (x @ gate.T).float()  # [B, T, E]; DeepSeek's of float32 from the start
    scores = logits.sigmoid() if sigmoid else logits.softmax(-1)
    rank = scores + weights[f"{name}.gate.e_score_correction_bias"] if sigmoid else scores
    if e.groups > 1:  # a group is as good as its best two experts
        grouped = rank.unflatten(-1, (e.groups, -1))  # [B, T, groups, E / groups]
        good = grouped.topk(2, dim=-1).values.sum(-1).topk(e.best_groups, dim=-1).indices  # [B, T, best]
        excluded = torch.ones_like(grouped[..., 0], dtype=torch.bool).scatter(-1, good, False)  # [B, T, groups]
        rank = grouped.masked_fill(excluded[..., None], -math.inf).flatten(-2)
    chosen = rank.topk(e.active, dim=-1).indices  # [B, T, active]
    shares = torch.zeros_like(scores).scatter(-1, chosen, scores.gather(-1, chosen))  # [B, T, E]
    if e.renormalise:
        shares = shares / shares.sum(-1, keepdim=True)
    return (shares * e.scale).to(x.dtype)


def norm(x, weights, name, config):
    """Each vector of x [..., n] normalised: RMS norm or layer norm, in float32 at least; x itself where there is no such norm."""
    if name is None:
        return x
    gain = weights[f"{name}.weight"]
    if config.norm == "rms" and not config.unit_gain:
        return llama.rms(x, gain, config.norm_eps)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))  # [..., n]
    if config.norm == "rms":  # Gemma multiplies before it casts back
        return (llama.rms(wide, 1 + gain.to(wide.dtype), config.norm_eps)).to(x.dtype)
    centred = wide - wide.mean(-1, keepdim=True)
    y = centred * torch.rsqrt((centred * centred).mean(-1, keepdim=True) + config.norm_eps) * gain
    bias = weights.get(f"{name}.bias")
    return (y if bias is None else y + bias).to(x.dtype)


# ------------------------------------------------------------------------------------------------------------- the next token


def options():
    """The script's argument parser."""
    parser = Parser(prog="variants.py", description=__doc__, keys=__file__)
    return parser.add("model", "dtype", "device", "prompt", "threads", "seed", "json")


@command
def main(argv=None):
    """Print the most probable next tokens of a model of any family, by the configurable forward."""
    args = options().parse_args(argv)
    model = general_form(load_for(args))
    ids = ids_for(args, model, 10)

    def report(values):
        head = f"{args.model}, a {model.config.model_type}, by the configurable forward, after {ids.shape[1]} tokens:"
        known = textwrap.fill(f"--model takes a folder or a hub id of any of these: {', '.join(values['families'])}.", 100)
        return f"{head}\n{shown(ids, model)}\n\n{llama.report(values, model)}\n{known}"

    answer(args, {"families": list(PROGRAMS), "next_tokens": next_tokens(model, ids)}, report)


if __name__ == "__main__":
    sys.exit(main())
