"""The page "Try it" in a browser: the texts that it writes are those of Chapter 5's loop on the same float16 weights and seed, and
the positions that it counts with and without the cache are Chapter 10's."""

import re
import time

import torch

from examples.ch02.model import run
from examples.ch03.tokens import decode
from examples.ch05.generate import generate
from examples.ch05.sampling import probabilities
from examples.ch10.cache_cost import tokens_processed
from tests.support import slow
from tests.try_page import SETTINGS, TEXT, TryPage, as_shown
from tests.web_support import fixed


@slow
class TryTexts(TryPage):
    # ------------------------------------------------------------------------------------------------ growing texts

    def test_the_text_of_a_seed(self):
        for changed, text in (
            ({}, TEXT),
            ({"seed": "7", "temperature": "1.2", "top-k": "", "top-p": "0.9"}, TEXT),
            ({"temperature": "0", "count": "60"}, "HAMLET:\n"),
            ({"seed": "4294967301", "top-p": "0.5", "top-k": "off"}, "naïve 🙂"),
        ):
            with self.subTest(text=text, **changed):
                self.type(text)
                chosen = SETTINGS | changed
                for name, value in chosen.items():
                    self.field(name, value)
                self.click("start")
                self.part("generation")
                number = {name: None if value in ("", "off") else float(value) for name, value in chosen.items()}
                ids, count = self.ids(text), int(chosen["count"])
                top_k = None if number["top-k"] is None else int(number["top-k"])
                made = generate(
                    ids, self.model, count, number["temperature"], top_k, number["top-p"], seed=int(chosen["seed"])
                ).sequence()
                prompt = decode(ids[0].tolist(), self.model)
                whole = decode(ids[0].tolist() + made, self.model)
                self.assertEqual(self.texts("#try-generation .result")[0], whole)
                self.assertEqual(self.written(), whole[len(prompt) :])
                told = rf"^Done: {count} new tokens in [\d.]+ s of computing, \d+ a second; temperature "
                self.assertRegex(self.words("generation"), told)

    def test_single_steps_and_what_they_had_to_choose_from(self):
        made = generate(self.ids(), self.model, 3, 0.8, 50, None, seed=0).sequence()
        text = self.ids()
        for n, id in enumerate(made, 1):
            self.click("step")
            told = f"New token {n}: “{as_shown(decode([id], self.model))}”, id {id}, drawn with a probability of"
            self.assertIn(told, self.words("generation"))
            self.assertEqual(self.written(), decode(made[:n], self.model))
            logits = run(self.model, text)[0, -1]
            final, plain = probabilities(logits, 0.8, 50), probabilities(logits, 0.8)
            rows = self.cells("#try-generation .candidates tbody tr")
            self.assertEqual([int(row[0]) for row in rows][:5], plain.topk(5).indices.tolist())
            self.assertEqual([int(row[0]) for row in rows if row[3] == "yes"], [id])
            for at, before, drawn, _ in rows:
                self.assertShown(before.removesuffix("%"), 100 * plain[int(at)].item(), 2, 2e-4)
                self.assertShown(drawn.removesuffix("%"), 100 * final[int(at)].item(), 2, 2e-4)
            text = torch.cat([text, torch.tensor([[id]])], dim=1)

    def test_stop_leaves_the_beginning_of_the_same_text(self):
        self.field("count", "200")
        self.click("start")
        self.wait("some tokens", "return document.querySelector('#try-generation .added').textContent.length > 10")
        self.click("stop")
        said = self.words("generation")
        stopped = self.written()
        time.sleep(0.3)
        self.assertEqual(self.written(), stopped)
        count = int(re.match(r"Stopped: (\d+) new tokens", said)[1])
        self.assertLess(count, 200)
        self.assertEqual(stopped, decode(generate(self.ids(), self.model, count, 0.8, 50, None, seed=0).sequence(), self.model))

    def test_the_page_is_not_frozen_while_a_text_grows(self):
        self.js("window.turns = 0; window.clock = setInterval(() => turns++, 1); document.querySelector('#try-start').click()")
        self.addCleanup(self.js, "clearInterval(clock)")
        self.part("generation")
        self.assertGreater(self.js("return turns"), int(SETTINGS["count"]) // 2, "the browser's turns between the tokens")

    def test_with_and_without_the_cache(self):
        for text, count, temperature in ((TEXT, 12, "0"), (TEXT, 40, "0.8"), ("O", 1, "0.8")):
            with self.subTest(text=text, count=count):
                self.type(text)
                self.field("count", str(count))
                self.field("temperature", temperature)
                self.click("both")
                self.part("cache")
                counted = tokens_processed(self.ids(text).shape[1], count)
                shown = {}
                for key, name in (("plain", "naive"), ("cached", "cached")):
                    side = f"#try-cache [data-side={key}]"
                    self.assertEqual(self.texts(f"{side} [data-name=positions]"), [f"{counted[name]:,}"])
                    self.assertEqual(self.texts(f"{side} [data-name=tokens]"), [str(count)])
                    shown[key] = self.texts(f"{side} .try-passage")[0]
                top_k = None if temperature == "0" else 50
                made = generate(self.ids(text), self.model, count, float(temperature), top_k, None, seed=0).sequence()
                self.assertEqual(shown, dict.fromkeys(shown, decode(made, self.model)))
                words = self.words("cache")
                self.assertIn("The tokens are the same.", words)
                self.assertIn(f"with it, {counted['ratio']:.1f} times as many", words)
                times = re.search(r"; ([\d,]+) ms against ([\d,]+), ([\d,.]+) times as long\.", words).groups()
                naive, cached = (int(n.replace(",", "")) for n in times[:2])
                self.assertEqual(times[2], fixed(naive / cached, 1), "the ratio of what is shown")
                self.assertGreater(naive, 0 if count == 1 else cached)

    def test_settings_that_cannot_be_used(self):
        for name, value, told in (
            ("temperature", "-1", "The temperature is “-1”; give a number from 0 (0 takes the most probable token)."),
            ("temperature", "", "The temperature is “”; give a number from 0 (0 takes the most probable token)."),
            ("temperature", "warm", "The temperature is “warm”; give a number from 0 (0 takes the most probable token)."),
            ("temperature", "Infinity", "The temperature is “Infinity”; give a number from 0 (0 takes the most probable token)."),
            ("top-k", "0", "Top-k is “0”; give how many tokens to keep, a whole number from 1, or leave it empty."),
            ("top-k", "2.5", "Top-k is “2.5”; give how many tokens to keep, a whole number from 1, or leave it empty."),
            ("top-p", "1.1", "Top-p is “1.1”; give a probability above 0 and up to 1, or leave it empty."),
            ("top-p", "0", "Top-p is “0”; give a probability above 0 and up to 1, or leave it empty."),
            ("seed", "x", f"The seed is “x”; give a whole number, 0 to {2**53 - 1}."),
            ("seed", "-3", f"The seed is “-3”; give a whole number, 0 to {2**53 - 1}."),
            ("count", "0", "New tokens are “0”; give a whole number from 1."),
            ("count", "1000", "The model has room for 251 new tokens, and 1000 are asked for; ask for fewer."),
        ):
            with self.subTest(name=name, value=value):
                self.field(name, value)
                for button, part in (("start", "generation"), ("step", "generation"), ("both", "cache")):
                    self.click(button)
                    self.assertEqual(self.texts(f"#try-{part} .try-problem"), [told])
                    self.assertTrue(self.invalid(name))
                self.assertEqual(self.written(), "")
                self.field(name, SETTINGS[name])
                self.click("step")
                self.assertEqual(self.texts("#try-generation .try-problem"), [""])
                self.type(TEXT + " ")
                self.type(TEXT)
