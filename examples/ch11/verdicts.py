"""How a room says what its data say of a hypothesis: by thresholds that were set before the data were seen.

A hypothesis names a cause of some time. An experiment takes the cause away, or times it alone, and finds what share of that time
it is. From SUPPORTED per cent up the hypothesis holds, below REFUTED it does not, and between them the cause is only a part.
"""

SUPPORTED = 50.0  # per cent of the time that is to be explained: more than all other causes together
REFUTED = 20.0


def verdict(percent: float | None) -> str:
    """supported, supported in part, refuted, or, of None, "nothing to explain"."""
    if percent is None:
        return "nothing to explain"
    return "supported" if percent >= SUPPORTED else "supported in part" if percent >= REFUTED else "refuted"


def share(part: float, whole: float) -> float | None:
    """`part` in per cent of `whole`; None where the whole is nothing or less, so that there is nothing to divide."""
    return 100 * part / whole if whole > 0 else None


def shown(percent: float | None, digits: int = 0) -> str:
    """A share for a table: 42%, or n/a."""
    return "n/a" if percent is None else f"{percent:.{digits}f}%"


def in_kib(caches: dict) -> dict:
    """{"L1": KiB, "L2": ..., "L3": ...} of {name: bytes}; None for one that is not known."""
    return {name: caches[name] // 2**10 if name in caches else None for name in ("L1", "L2", "L3")}


def cache_words(kib: dict) -> str:
    """What a report says of them."""
    return ", ".join(f"{name} {'unknown' if size is None else f'{size:,}'}" for name, size in kib.items())
