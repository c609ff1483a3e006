"""The register of all claims of the book, with the status, the evidence and the limits of each: `research/evidence-register.md`."""

from pathlib import Path

from tabulate import tabulate

from examples.lab.script import write_whole
from scripts.experiments import claims, experiments
from scripts.records import read_all

STATUS = {"exact": "established", "tolerance": "measured", "observation": "measured", "timing": "measured"}
HEAD = """# The evidence register

Every claim of the book, made from the experiments, the claims and the records by `make evidence`; do not edit it by hand.
Established: exact, true of the program by its structure. Measured: within a stated bound, or observed or timed on one machine.
Hypothesis: fits the measurements, and is not tested by them. Not shown here: nothing in the chapter speaks for it.

"""


def register_path(root):
    """Where the register is kept."""
    return Path(root) / "research" / "evidence-register.md"


def register(root):
    """The register of the records and claims under `root`, in Markdown."""
    records, rows = read_all(root), []
    for e in experiments():
        for ref in (r for r in records if r == e.id or r.startswith(f"{e.id}@")):
            record = records[ref]
            command = f"`{record['command']}`"
            model = record["model"] + (f" ({record['model_sha256'][:12]})" if record["model_sha256"] else "")
            rows.append([f"`{ref}`", e.chapter, record["claim"], STATUS[e.kind], f"{e.kind}; {command}; {model}", record["limits"]])
    for c in claims(root):
        evidence = ", ".join(f"`{e}`" for e in c.evidence) or "none"
        rows.append([f"`{c.id}`", c.chapter, c.claim, c.status, evidence, c.limits])
    rows = sorted(([cell.replace("|", "\\|") for cell in row] for row in rows), key=lambda row: (row[1], row[0]))
    headings = ["id", "chapter", "claim", "status", "evidence", "limits"]
    return HEAD + tabulate(rows, headings, tablefmt="github", disable_numparse=True) + "\n"


def write_register(root):
    """Write the register of `root`, whole."""
    write_whole(register_path(root), register(root))
