"""float16, bfloat16, and blocks with a scale."""

import torch


def float16_value(bits):
    sign, exponent, mantissa = bits >> 15, bits >> 10 & 31, bits & 1023
    if exponent == 31:
        size = float("inf")
    elif exponent == 0:
        size = mantissa * 2.0**-24
    else:
        size = (1 + mantissa / 1024) * 2.0 ** (exponent - 15)
    return -size if sign else size


def bfloat16_bits(x):
    bits = x.view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def to_blocks(x, n):
    blocks = x.reshape(-1, n)
    scale = blocks.abs().amax(1, keepdim=True) / 127
    steps = torch.where(scale > 0, blocks / scale, 0.0)
    whole = torch.sign(steps) * torch.floor(steps.abs() + 0.5)
    scales = scale.to(torch.float16).reshape(*x.shape[:-1], -1)
    return scales, whole.to(torch.int8).reshape(x.shape)


def from_blocks(scales, whole):
    blocks = whole.reshape(*scales.shape, -1).float() * scales.float()[..., None]
    return blocks.reshape(whole.shape)


def bytes_per_weight(n):
    return 1 + 2 / n


def error_in_block(x, n):
    off = (from_blocks(*to_blocks(x, n)) - x).reshape(-1, n).abs().amax(1)
    most = x.reshape(-1, n).abs().amax(1)
    return (off[most > 0] / most[most > 0]).max().item()
