"""Checks of ch11.1: intensity, bound and the rows at the ridge."""

from scripts.grading.answers import Mutant


def cases(draw):
    for rows, n, m, number in ((1, 768, 3072, 4), (128, 768, 3072, 4), (16, 64, 64, 2), (7, 20, 900, 0.5625)):
        yield "the intensity", "intensity", {"rows": rows, "n": n, "m": m, "number": number}
    for _ in range(6):
        sizes = {"rows": draw.whole(1, 300), "n": draw.whole(8, 900), "m": draw.whole(8, 900), "number": draw.choice([1, 2, 4])}
        yield "the intensity", "intensity", sizes
    for moved in (1, 3, 40, 200, 900, 100):
        flops = 100 * draw.uniform(0.9, 1.1) if moved != 100 else 100
        yield "the bound", "bound", {"flops": flops, "moved": moved, "flop_per_s": 8.0, "bytes_per_s": 8.0}
    for _ in range(6):
        rates = {"flop_per_s": draw.uniform(20, 60), "bytes_per_s": draw.uniform(4, 9)}
        yield "the bound", "bound", {"flops": draw.uniform(10, 500), "moved": draw.uniform(10, 100), **rates}
    for number, ridge in ((4, 5.3), (2, 22.7), (2, 150.1), (4, 31.9), (1, 3.3), (0.5625, 8.1), (4, 160.2), (2, 400.3)):
        sizes = {"n": draw.choice([256, 576, 768]), "m": draw.choice([192, 1536, 3072]), "number": number}
        yield "rows at the ridge", "rows_at_ridge", {**sizes, "ridge": ridge + draw.uniform(0.001, 0.05)}
    for n, m in ((64, 64), (128, 96)):
        yield "rows at the ridge", "rows_at_ridge", {"n": n, "m": m, "number": 4, "ridge": 295.2}


MUTANTS = [
    Mutant("a multiply-add counts as one FLOP here; it is two", "return 2 * rows", "return rows"),
    Mutant("the result is not counted as moved", "rows * n + n * m + rows * m", "rows * n + n * m"),
    Mutant("the first operand is not counted as moved", "rows * n + n * m + rows * m", "n * m + rows * m"),
    Mutant("only the matrix [n, m] is counted as moved", "rows * n + n * m + rows * m", "n * m"),
    Mutant("numbers are counted, not bytes", "(number * (rows", "(1 * (rows"),
    Mutant(
        "this is bytes per FLOP",
        "return 2 * rows * n * m / (number * (rows * n + n * m + rows * m))",
        "return (number * (rows * n + n * m + rows * m)) / (2 * rows * n * m)",
    ),
    Mutant("the two times are added; at best they overlap", "return max(compute, memory)", "return compute + memory"),
    Mutant("the shorter of the two times is given; neither can be skipped", "return max(compute", "return min(compute"),
    Mutant(
        "the names of the two limits are exchanged",
        '"arithmetic" if compute > memory else "memory"',
        '"memory" if compute > memory else "arithmetic"',
    ),
    Mutant("where both take as long, this says arithmetic", "compute > memory", "compute >= memory"),
    Mutant("the number of rows is rounded down, so that it is one short of the ridge", "math.ceil(ridge", "math.floor(ridge"),
    Mutant(
        "only the matrix is counted as moved, so that there are too few rows",
        "- ridge * number * (n + m)",
        "- 0 * number * (n + m)",
    ),
    Mutant("the bytes of a number are left out of the rows", "math.ceil(ridge * number", "math.ceil(ridge * 1"),
    Mutant("a ridge that no number of rows reaches is not told from one that some do", "if gained <= 0:", "if gained == 0:"),
]

RANGES = {"ridge": (0.5, 200), "rows": (2, 100_000)}

RUBRIC = """
1 point: the bound of that matrix at fewer and at more rows than the number found, with the limit that each names.
1 point: the ridge and the rows in bfloat16, and why they differ from those in float32.
1 point: inputs and results move too and grow with the rows: more rows are needed than the ridge times half the bytes.
"""
