"""A ring buffer's slots, the place where a cache goes wrong, and the prefix that it shares."""


def ring_slots(fed, capacity):
    slots = [-1] * capacity
    for t in range(fed):
        slots[t % capacity] = t
    return slots


def first_wrong(ours, oracle, bound):
    far = (ours - oracle).abs().amax(-1) > bound * oracle.abs().max()
    return int(far.int().argmax()) if far.any() else -1


def argmax_changed(ours, oracle):
    return int((ours.argmax(-1) != oracle.argmax(-1)).sum())


def shared_prefix(held, ids):
    if held.shape[0] != ids.shape[0]:
        return 0
    n = min(held.shape[1], ids.shape[1])
    same = (held[:, :n] == ids[:, :n]).all(0)
    return int(same.int().cumprod(0).sum())
