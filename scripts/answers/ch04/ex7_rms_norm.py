"""RMS norm."""

import torch


def rms_norm(x, gain, epsilon):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    mean = (wide * wide).mean(-1, keepdim=True)
    return (wide * torch.rsqrt(mean + epsilon) * gain).to(x.dtype)
