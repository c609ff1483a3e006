"""The training of the embedded model: the text, the n-gram baselines, resuming, and what the model in the repository is."""

import json
import math
import unittest
from dataclasses import replace
from unittest import mock

import numpy as np
import torch

from examples.ch02 import model as ch02
from examples.ch04.gpt2_from_scratch import forward
from scripts import ngrams
from scripts import train_embedded_model as training
from tests.support import FolderCase

PLAY = """# A Play

## ACT I

### SCENE I. A wood.

_Enter ROSALIND
and TOUCHSTONE_

**ROSALIND**  
O Jupiter\u2014how weary
_[Aside]_ are my spirits!  

**SIR A & c**  
\\-- no; _\\[ ]_ *[Exit]*

_\\[Sings]_  
9\\. A song


_Exeunt_
"""  # noqa: W291  two spaces at a line's end are Markdown's line break
SPOKEN = """ACT I

SCENE I. A wood.

[Enter ROSALIND
and TOUCHSTONE]

ROSALIND:
O Jupiter--how weary
[Aside] are my spirits!

SIR A &c:
-- no;  [Exit]

[Sings]
9. A song

[Exeunt]
"""


class Text(FolderCase):
    def test_plain_speech(self):
        self.assertEqual(training.plain_speech(PLAY), SPOKEN)

    def test_whole_plays_on_either_side(self):
        plays = {"hamlet": "a", "macbeth": "b", "twelfth-night": "c", "henry-v": "d"}
        self.assertEqual(training.split(plays), (["a", "d"], ["b", "c"]))

    def test_a_wheel_that_is_another(self):
        (self.folder / training.WHEEL).write_bytes(b"something else")
        self.assertBad(training.main, ["--work", self.folder, "--steps", "1"], training.WHEEL, "sha256", "delete it")

    def test_tokenizer(self):
        tokenizer = training.train_tokenizer(["to be or not to be " * 50, "the cat sat on the mat and the bat " * 50], 280)
        self.assertEqual((tokenizer.get_vocab_size(), tokenizer.token_to_id("<|endoftext|>")), (280, 279))
        ids = training.encode(tokenizer, ["to be", "é"])
        self.assertEqual((ids[0], (ids == 279).sum()), (279, 2))
        self.assertEqual(tokenizer.decode(ids.tolist(), skip_special_tokens=True), "to beé")


class Ngrams(unittest.TestCase):
    def setUp(self):
        self.ids = np.random.default_rng(0).integers(0, 7, 300) ** 2 % 7

    def by_hand(self, ids, history, word, vocab_size, discounts):
        """The definition, counted with loops."""
        if not history:
            return (sum(i == word for i in ids) + 1) / (len(ids) + vocab_size)
        n = len(history)
        after = [ids[i + n] for i in range(len(ids) - n) if tuple(ids[i : i + n]) == history]
        shorter = self.by_hand(ids, history[1:], word, vocab_size, discounts[:-1])
        if not after:
            return shorter
        discount = discounts[-1]
        return max(after.count(word) - discount, 0) / len(after) + discount * len(set(after)) / len(after) * shorter

    def test_against_the_definition(self):
        for order, discounts in ((1, ()), (2, (0.5,)), (3, (0.5, 0.8))):
            model = ngrams.NgramModel(self.ids, 9, order, discounts)
            probe = np.random.default_rng(1).integers(0, 9, 60)  # 7 and 8 were never seen
            found = model.probabilities(probe)
            for i, p in enumerate(found):
                history = tuple(probe[i : i + order - 1])
                self.assertAlmostEqual(p, self.by_hand(self.ids.tolist(), history, probe[i + order - 1], 9, discounts), places=12)

    def test_probabilities_sum_to_one(self):
        for order, discounts in ((1, ()), (2, (0.3,)), (3, (0.3, 0.9))):
            model = ngrams.NgramModel(self.ids, 9, order, discounts)
            for history in ((0, 1), (8, 8), (1, 8), (2, 4)):
                total = sum(model.probabilities([*history, w])[-1] for w in range(9))
                self.assertAlmostEqual(total, 1.0, places=12)

    def test_tuning_uses_no_text_that_is_scored(self):
        model = ngrams.tune(self.ids, 9, 3)
        cut = int(len(self.ids) * 0.95)
        losses = {d: ngrams.NgramModel(self.ids[:cut], 9, 2, (d,)).loss(self.ids[cut:], 1) for d in ngrams.DISCOUNTS}
        self.assertEqual(model.discounts[0], min(losses, key=losses.get))

    def test_the_final_model_counts_everything(self):
        ids = np.concatenate([np.zeros(95, dtype=np.int64), np.full(5, 3)])
        for order in (1, 2, 3):
            self.assertAlmostEqual(ngrams.tune(ids, 9, order).unigram[3], 6 / 109)
        self.assertEqual((ngrams.DISCOUNTS[0], ngrams.DISCOUNTS[-1], len(ngrams.DISCOUNTS)), (0.05, 0.95, 19))

    def test_a_pattern_is_learned(self):
        ids = np.tile([0, 1, 0, 2], 100)
        losses = [ngrams.tune(ids, 3, n).loss(ids, 2) for n in (1, 2, 3)]
        self.assertGreater(losses[0], losses[1])
        self.assertGreater(losses[1], losses[2])
        self.assertLess(losses[2], 0.1)


class Training(FolderCase):
    recipe = training.Recipe(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2, batch_size=2, steps=6, warmup=2)

    def setUp(self):
        super().setUp()
        self.ids = np.tile(np.arange(20), 30)
        bar = mock.patch.object(training, "tqdm")
        bar.start()
        self.addCleanup(bar.stop)

    def run_steps(self, name, stop_at=None):
        """Train to the end, or as a run that is cut off at step `stop_at`, after the checkpoint there."""
        model = training.build(self.recipe)
        path = self.folder / f"{name}.safetensors"
        if stop_at is not None:
            real = training.save_checkpoint

            def save_then_stop(path, model, adam, step, log, recipe):
                real(path, model, adam, step, log, recipe)
                if step == stop_at:
                    raise KeyboardInterrupt

            with mock.patch.object(training, "save_checkpoint", save_then_stop), self.assertRaises(KeyboardInterrupt):
                training.train(model, self.ids, self.ids[:50], self.recipe, path, every=1)
            model = training.build(replace(self.recipe))
        log = training.train(model, self.ids, self.ids[:50], self.recipe, path, every=1)
        return {n: p.detach().clone() for n, p in model.named_parameters()}, log

    def test_resuming_gives_the_same_weights(self):
        whole, log = self.run_steps("whole")
        parts, parts_log = self.run_steps("parts", stop_at=3)
        self.assertEqual([e["step"] for e in log], [1, 2, 3, 4, 5, 6])
        self.assertEqual(log, parts_log)
        for name, p in whole.items():
            self.assertTrue(torch.equal(p, parts[name]), name)
        start = dict(training.build(self.recipe).named_parameters())
        self.assertFalse(torch.equal(start["transformer.wte.weight"], whole["transformer.wte.weight"]))

    def test_a_checkpoint_of_another_recipe(self):
        self.run_steps("a")
        with self.assertRaisesRegex(ValueError, "another recipe"):
            other = replace(self.recipe, dropout=0.5)
            training.train(training.build(other), self.ids, self.ids, other, self.folder / "a.safetensors")

    def test_it_learns_the_next_token(self):
        """A cycle of 20 ids is learned: the validation loss falls to nearly nothing, which copying the input would not give."""
        recipe = replace(self.recipe, steps=150, n_embd=32, batch_size=8, dropout=0.0, learning_rate=1e-2)
        model = training.build(recipe)
        log = training.train(model, self.ids, self.ids[:50], recipe, self.folder / "a.safetensors", every=50)
        self.assertGreater(log[0]["valid_loss"], log[-1]["valid_loss"])
        self.assertLess(log[-1]["valid_loss"], 0.2)

    def test_what_each_step_uses(self):
        """Dropout is on while it trains, the rate is the schedule's, gradients are clipped, matrices decay and vectors do not."""
        rates, modes, clips = [], [], []
        real_step, real_clip = torch.optim.AdamW.step, torch.nn.utils.clip_grad_norm_

        def step(adam, *args):
            rates.append([g["lr"] for g in adam.param_groups])
            self.assertEqual([g["weight_decay"] for g in adam.param_groups], [self.recipe.weight_decay, 0.0])
            self.assertTrue(all(p.ndim == 2 for p in adam.param_groups[0]["params"]))
            modes.append(model.training)
            return real_step(adam, *args)

        def clip(parameters, norm):
            clips.append(norm)
            return real_clip(parameters, norm)

        model = training.build(self.recipe)
        with mock.patch.object(torch.optim.AdamW, "step", step), mock.patch.object(torch.nn.utils, "clip_grad_norm_", clip):
            training.train(model, self.ids, self.ids[:50], self.recipe, self.folder / "a.safetensors")
        self.assertEqual(rates, [[training.learning_rate(i, self.recipe)] * 2 for i in range(6)])
        self.assertEqual((modes, clips), ([True] * 6, [self.recipe.clip_norm] * 6))

    def test_measuring(self):
        """The n-grams know the training ids alone, and all losses are over the same tokens."""
        model = training.build(self.recipe)
        train_ids, valid_ids = self.ids, np.random.default_rng(0).integers(0, 20, 60)
        found = training.measure(model, train_ids, valid_ids, 150, self.recipe)
        stream = np.concatenate([[19], valid_ids])
        for order, name in enumerate(("unigram", "bigram", "trigram"), 1):
            ngram = ngrams.tune(train_ids, 20, order)
            expected = -np.log(ngram.probabilities(stream)[3 - order :]).mean()
            self.assertAlmostEqual(found["nats_per_token"][name], expected, places=4)
            self.assertEqual(len(ngram.probabilities(stream)[3 - order :]), found["tokens"])
        own = training.validation_loss(model, valid_ids, 8)
        self.assertAlmostEqual(found["nats_per_token"]["model"], own, places=4)
        self.assertAlmostEqual(found["bits_per_character"]["model"], own * 59 / 150 / math.log(2), places=4)

    def test_a_damaged_checkpoint(self):
        self.run_steps("a")
        path = self.folder / "a.safetensors"
        path.write_bytes(path.read_bytes()[:100])
        with self.assertRaisesRegex(ValueError, "damaged.*delete it"):
            self.run_steps("a")

    def test_each_recipe_has_its_own_checkpoint(self):
        paths = {training.checkpoint_path(self.folder, replace(self.recipe, steps=n)) for n in (6, 7, 6)}
        self.assertEqual(len(paths), 2)

    def test_a_place_that_is_taken(self):
        (self.folder / "thesis.txt").write_text("precious")
        self.assertBad(training.main, ["--out", self.folder], "not a model folder")  # before anything is fetched

    def test_learning_rate(self):
        recipe = training.Recipe(steps=1000, warmup=100)
        self.assertAlmostEqual(training.learning_rate(0, recipe), recipe.learning_rate / 100)
        self.assertAlmostEqual(training.learning_rate(100, recipe), recipe.learning_rate)
        self.assertAlmostEqual(training.learning_rate(1000, recipe), recipe.final_rate)

    def test_validation_predicts_every_token_once(self):
        model = training.build(self.recipe)
        ids = self.ids[:30]
        total, count = 0.0, 0
        for start in range(0, 29, 8):
            window = torch.tensor(ids[start : start + 9])[None]
            logits = model.eval()(window[:, :-1]).logits[0]
            total -= torch.log_softmax(logits, -1).gather(1, window[0, 1:, None]).sum().item()
            count += window.shape[1] - 1
        self.assertEqual(count, 29)
        self.assertAlmostEqual(training.validation_loss(model, ids, 8), total / 29, places=5)


class EmbeddedModel(unittest.TestCase):
    """The model in the repository: it loads anywhere, it has learned, and its card says what its log says."""

    @classmethod
    def setUpClass(cls):
        cls.folder = ch02.EMBEDDED
        cls.log = json.loads((cls.folder / "training_log.json").read_text())
        cls.model = ch02.load()

    def test_size(self):
        self.assertLess((self.folder / "model.safetensors").stat().st_size, 16_000_000)
        self.assertEqual(self.model.manifest["parameters"], self.log["sizes"]["parameters"])
        self.assertEqual(self.model.tokenizer.get_vocab_size(), self.model.config.vocab_size)

    def test_it_beats_the_trigram(self):
        nats = self.log["validation"]["nats_per_token"]
        self.assertGreaterEqual(nats["trigram"] - nats["model"], 0.15)
        self.assertTrue(nats["unigram"] > nats["bigram"] > nats["trigram"])
        ratio = self.log["validation"]["tokens"] / self.log["validation"]["characters"] / math.log(2)
        for name, x in nats.items():
            self.assertAlmostEqual(self.log["validation"]["bits_per_character"][name], x * ratio, places=3)

    def test_it_knows_a_passage_that_it_was_not_trained_on(self):
        """Twelve lines of the held-out Macbeth, through our own pass: below the trigram's loss on the whole play."""
        text = (
            "MACBETH:\nShe should have died hereafter;\nThere would have been a time for such a word.\n"
            "To-morrow, and to-morrow, and to-morrow,\nCreeps in this petty pace from day to day\n"
            "To the last syllable of recorded time,\nAnd all our yesterdays have lighted fools\n"
            "The way to dusty death. Out, out, brief candle!\nLife's but a walking shadow, a poor player\n"
            "That struts and frets his hour upon the stage\nAnd then is heard no more: it is a tale\n"
            "Told by an idiot, full of sound and fury,\nSignifying nothing.\n"
        )
        ids = torch.tensor([self.model.tokenizer.encode(text).ids])
        logits = forward(ids[:, :-1], self.model.weights, self.model.config)
        loss = torch.nn.functional.cross_entropy(logits[0], ids[0, 1:]).item()
        self.assertLess(loss, self.log["validation"]["nats_per_token"]["trigram"])
        shuffled = ids[:, torch.randperm(ids.shape[1], generator=torch.Generator().manual_seed(0))]
        logits = forward(shuffled[:, :-1], self.model.weights, self.model.config)
        self.assertGreater(torch.nn.functional.cross_entropy(logits[0], shuffled[0, 1:]).item(), loss + 1)

    def test_the_card_is_made_from_the_log(self):
        card = (self.folder / "README.md").read_text()
        nats, bits = (self.log["validation"][k] for k in ("nats_per_token", "bits_per_character"))
        for name in nats:
            row = next(line for line in card.splitlines() if line.startswith(f"| {name} "))
            self.assertEqual([c.strip() for c in row.strip("|").split("|")], [name, f"{nats[name]:.3f}", f"{bits[name]:.3f}"])
        self.assertEqual(card.count("```text"), 5)
        texts = [(p, "") for p in training.SAMPLE_PROMPTS]
        recipe = training.Recipe(**{k: tuple(v) if isinstance(v, list) else v for k, v in self.log["recipe"].items()})
        again = training.card(recipe, self.log["sizes"], self.log["validation"], self.log["curve"], texts)
        self.assertEqual(card.split("## Samples")[0], again.split("## Samples")[0])

    def test_the_library_loads_it_as_it_is(self):
        from transformers import AutoModelForCausalLM

        theirs, about = AutoModelForCausalLM.from_pretrained(self.folder, output_loading_info=True)
        self.assertEqual(type(theirs).__name__, "GPT2LMHeadModel")
        self.assertEqual((set(about["missing_keys"]), set(about["unexpected_keys"])), (set(), set()))
        self.assertTrue(torch.equal(theirs.transformer.wte.weight, self.model.weights["wte.weight"]))
        self.assertEqual(theirs.config.eos_token_id, self.model.tokenizer.token_to_id("<|endoftext|>"))


if __name__ == "__main__":
    unittest.main()
