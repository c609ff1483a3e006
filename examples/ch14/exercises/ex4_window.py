r"""Sliding window.

Write the mask of a window, the ring of slots that keeps a window's keys, and how far back layers with windows see. Then compute
the cache of a request of 32,768 positions in Mistral 7B's shape (in the appendix), at two bytes a number, with a window of 4,096 in
every layer, in every other, in three of four, and in none. *Hand in:* the functions, the bytes, how many whole requests fit into
40 GiB beside the weights with all layers windowed and with none, and a paragraph. *A right answer shows* 8 times fewer bytes in the
first case, the ratios 2 and 4 that the two mixed ones approach as the request grows, and why the numbers of whole requests have
another ratio than the bytes.
"""

from torch import Tensor

EXERCISE = {
    "id": "ch14.4",
    "difficulty": 2,
    "minutes": 80,
    "points": {"code": 7, "numbers": 3, "paragraph": 2},
    "numbers": {
        "every_layer_mib": "MiB, 2^20 bytes, of the request's cache with the window in every layer",
        "every_other_mib": "the same with the window in every other layer",
        "three_of_four_mib": "the same with the window in three of four layers",
        "no_layer_mib": "the same with no window",
        "requests_windowed": "whole requests that fit into 40 GiB beside the weights with the window in every layer",
        "requests_full": "the same with no window",
    },
}


def window_mask(T: int, S: int, window: int | None) -> Tensor:
    """[T, S] float32, 0 where a query may look and minus infinity elsewhere: the queries are the last T of S positions.

    Each sees the last `window` positions, its own among them; all up to its own where window is None.
    """
    raise NotImplementedError


def held_positions(seen: int, slots: int) -> list[int]:
    """Which position stands in each slot of a ring after positions 0 to seen - 1 were written; -1 for a slot still empty.

    Position p goes to slot p mod slots, over whatever stands there.
    """
    raise NotImplementedError


def write(ring: Tensor, seen: int, new: Tensor) -> Tensor:
    """The ring [B, g, slots, dh] after positions seen, seen + 1, ... were written with new [B, g, n, dh].

    n may be larger than slots. The ring that was given stays as it is.
    """
    raise NotImplementedError


def attend(q: Tensor, keys: Tensor, values: Tensor, seen: int) -> Tensor:
    """Attention [B, h, dh] of the newest position's q [B, h, dh] over rings of keys and values [B, h, slots, dh].

    `seen` positions were written to them, its own the last; what stands in empty slots must not matter. Scores are divided by the
    root of dh.
    """
    raise NotImplementedError


def first_reached(windows: list[int | None], position: int) -> int:
    """The first position whose token can change the output at `position`, through layers with these windows, one entry each.

    None: the layer sees everything.
    """
    raise NotImplementedError


def cache_bytes(windows: list[int | None], context: int, g: int, dh: int, bytes_per_number: int) -> int:
    """Bytes of keys and values of one request of `context` positions: a layer with a window keeps that many positions at most."""
    raise NotImplementedError


def requests(memory_bytes: int, weight_bytes: int, request_bytes: int) -> int:
    """How many whole requests fit beside the weights; none where even the weights do not fit."""
    raise NotImplementedError
