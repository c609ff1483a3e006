"""What the tests of chapter 2 share: a folder is loaded and gives the known logits, or is refused in one line."""

import torch

from examples.ch02.manifest import main
from examples.ch02.model import load
from examples.ch04.gpt2_from_scratch import forward
from examples.lab.script import BadInput
from tests.support import BASELINE, BASELINE_ARGMAX, IDS, FolderCase


def logits(folder):
    """Logits [8, V] of the tiny input through the model at `folder`."""
    model = load(folder)
    return forward(IDS, model.weights, model.config)[0]


class LoadCase(FolderCase):
    def assertBaseline(self, folder):
        found = logits(folder)
        torch.testing.assert_close(found[-1], BASELINE, atol=1e-4, rtol=0)
        self.assertEqual(found.argmax(-1).tolist(), BASELINE_ARGMAX)

    def assertRefused(self, folder, *words):
        """Loading raises one line with `words`, and the script says it with status 2."""
        with self.assertRaises(BadInput) as caught:
            load(folder)
        for word in words:
            self.assertIn(word, str(caught.exception))
        self.assertBad(main, ["--model", folder], *words)
