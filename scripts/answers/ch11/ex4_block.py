"""Blocks of four-bit numbers, unpacked and multiplied."""

import torch


def parts(blocks):
    """(scale [..., 1], minimum [..., 1], whole numbers [..., 32]) of blocks [..., 20], all float32."""
    halves = blocks[..., :4].contiguous().view(torch.float16).float()
    packed = blocks[..., 4:]
    whole = torch.cat([packed & 15, packed >> 4], dim=-1).float()
    return halves[..., :1], halves[..., 1:], whole


def unpack(block):
    scale, minimum, whole = parts(block)
    return scale * whole + minimum


def times(blocks, x):
    scale, minimum, whole = parts(blocks)
    x = x.view(-1, 32)
    of_each = scale[..., 0] * (whole * x).sum(-1) + minimum[..., 0] * x.sum(-1)
    return of_each.sum(-1)
