"""A book of one chapter in a folder, with four experiments, their records, a figure, a claim, a manuscript, a listing of code and
a transcript: what the tests of `scripts/` change in one place at a time."""

import shutil
from dataclasses import replace
from unittest import mock

from examples.lab.experiment import Experiment
from examples.lab.script import dump_json
from scripts import check, evidence, figures, records, refresh, register
from tests.support import ROOT, FolderCase

ONE = Experiment(
    "ch98.one", "exact", "One is one.", "Nothing else.", lambda: {"n": 1234}, model="none", loads=False, headline=("n", "int")
)
NEAR = replace(
    ONE,
    id="ch98.near",
    headline=None,
    kind="tolerance",
    claim="It is near.",
    measure=lambda: {"bound": 1.0, "worst": 0.43, "held": True, "of": 3},
)
ROWS = [{"tokens": 16, "ms": 1.5, "name": "a|b"}, {"tokens": 128, "ms": None, "name": "c"}]
SEEN = replace(
    ONE,
    id="ch98.seen",
    kind="observation",
    headline=None,
    claim="It was seen.",
    measure=lambda: {"x": 1.2345, "rows": ROWS},
    figures={"seen.svg": lambda values, path: path.write_text(f"<svg>{values['x']}</svg>")},
)
TIME = replace(ONE, id="ch98.time", kind="timing", headline=None, claim="It took time.", measure=lambda: {"run_ms": 12.345})
CLAIM = {"id": "ch98.guess", "status": "hypothesis", "claim": "So it is.", "evidence": ["ch98.seen"], "limits": "Not tested."}

CHAPTER = """---
title: A chapter
number: 98
draft: false
---

# A chapter

## The claim

There are <!--=ch98.one n int-->1,234<!--/--> of them, and the worst of <!--const-->2.5<!--/--> is off
by <!--=ch98.near worst g1-->0.5<!--/-->; see [the register](../../../research/evidence-register.md).

<!--=ch98.seen rows table name:text tokens:int ms:f1:time,_ms-->

| name   |   tokens |   time, ms |
|--------|----------|------------|
| a\\|b   |       16 |        1.5 |
| c      |      128 |        n/a |

<!--/-->

<!--code examples/ch04/gpt2_from_scratch.py linear--><!--/-->

<!--run python examples/ch05/five_candidates.py | 1-3,7---><!--/-->

It took <!--=ch98.time run_ms ms1-->12.3 ms<!--/--> here. <!--claim ch98.guess-->So it is, perhaps.

## Where this sits

![What was seen, as one number](../../../research/ch98/figures/seen.svg)

Run it, as [above](#the-claim), with `scripts/evidence.py`:

```sh
make evidence CHAPTER=ch98
python examples/ch04/cost_model.py --context 16,1024
```
"""
HEADINGS = "".join(f"\n## {heading}\n\nText.\n" for heading in check.HEADINGS[2:])


class SmallBook(FolderCase):
    """A test case with that book in `self.folder`, in which nothing is wrong."""

    def setUp(self):
        super().setUp()
        self.use(ONE, NEAR, SEEN, TIME)
        for name, value in (("machine", {"processor": "this one"}), ("commit", "0" * 40)):
            patch = mock.patch.object(evidence, name, return_value=value)
            patch.start()
            self.addCleanup(patch.stop)
        self.chapter = self.write("content/books/inference/98-chapter.md", CHAPTER + HEADINGS)
        self.claims = self.write("research/ch98/claims.json", dump_json({"chapter": "ch98", "claims": [CLAIM]}))
        self.write("README.md", "# A book\n\nSee [its chapter](content/books/inference/98-chapter.md).\n\n```sh\nmake check\n```\n")
        shutil.copy(ROOT / "Makefile", self.folder / "Makefile")
        for name in ("examples", "scripts"):  # so that links and commands lead somewhere
            (self.folder / name).symlink_to(ROOT / name)
        self.path = records.results_path(self.folder, "ch98")
        self.update(ONE, NEAR, SEEN, TIME)
        self.assertEqual(refresh.refresh(self.folder), [])

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def use(self, *experiments):
        """Let the book's experiments be `experiments`."""
        for module in (check, evidence, figures, records, register):
            patch = mock.patch.object(module, "experiments", return_value=experiments)
            patch.start()
            self.addCleanup(patch.stop)

    def update(self, *experiments, **options):
        """Run `experiments` and write their records; what `evidence.update` says of each."""
        return [change for _, change, _ in evidence.update(list(experiments), root=self.folder, **options)]

    def records(self):
        return records.read_results(self.path)

    def replace(self, path, old, new):
        """Put `new` for the first `old` of a file that has it."""
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new, 1))
