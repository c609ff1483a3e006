"""The cache, with a dtype of its own."""

import torch


class Cache:
    def __init__(self, layers, batch, heads, capacity, width, store):
        shape = (layers, batch, heads, capacity, width)
        self.keys, self.values = torch.zeros(shape, dtype=store), torch.zeros(shape, dtype=store)
        self.ids = torch.zeros(batch, capacity, dtype=torch.int64)
        self.capacity, self.length = capacity, 0

    @property
    def nbytes(self):
        return self.keys.nbytes + self.values.nbytes

    def extend(self, layer, k, v):
        end = self.length + k.shape[2]
        if end > self.capacity:
            raise ValueError("the cache is full")
        self.keys[layer, :, :, self.length : end] = k
        self.values[layer, :, :, self.length : end] = v
        return self.keys[layer, :, :, :end].to(k.dtype), self.values[layer, :, :, :end].to(k.dtype)

    def advance(self, ids):
        end = self.length + ids.shape[1]
        self.ids[:, self.length : end] = ids
        self.length = end

    def truncate(self, length):
        if not 0 <= length <= self.length:
            raise ValueError("these are not held")
        self.length = length

    def shared_prefix(self, ids):
        n = min(self.length, ids.shape[1])
        same = (self.ids[:, :n] == ids[:, :n]).all(0)
        return int(same.int().cumprod(0).sum())
