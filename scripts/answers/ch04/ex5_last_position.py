"""The last position alone, and what it saves."""

import torch


def last_logits(x, gain, shift, table, epsilon):
    last = x[:, -1]
    centred = last - last.mean(-1, keepdim=True)
    variance = (centred**2).mean(-1, keepdim=True)
    normed = centred * torch.rsqrt(variance + epsilon) * gain + shift
    return normed @ table.T


def saving_percent(T, d, f, L, V):
    layers = L * (T * 2 * (4 * d * d + 2 * d * f) + 4 * T * T * d)
    head = T * 2 * d * V
    return 100 * head * (T - 1) / T / (layers + head)
