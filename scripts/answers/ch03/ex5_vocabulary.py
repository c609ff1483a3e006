"""The table's share, and its two uses."""

import torch


def embedding_share(V, d, layers, positions, tied=True):
    rest = positions * d + layers * (12 * d**2 + 13 * d) + 2 * d
    return [V * d, (1 if tied else 2) * V * d + rest]


def vocabulary_for(share, d, layers, positions, tied=True):
    rest = embedding_share(0, d, layers, positions)[1]
    return share / (1 - share) * rest / d / (1 if tied else 2)


def one_hot(ids, V):
    rows = torch.zeros(len(ids), V)
    rows[torch.arange(len(ids)), ids] = 1.0
    return rows


def look_up(ids, table):
    return table[ids]


def scores(x, table):
    return x @ table.T
