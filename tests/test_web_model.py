"""The embedded model in the page: held to the repository's own functions, and with faults that each check must find."""

import json
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

from examples.lab.script import BadInput
from scripts.web_edition.model_files import TOKENIZER, WEIGHTS, model_files, write_model_files
from tests import web_model
from tests.browser import the_browser
from tests.support import loaded

ERF = (  # GELU by the error function, in Abramowitz and Stegun's approximation 7.1.26, which is right to 1.5e-7
    "((z, u) => 0.5 * x * (1 + Math.sign(x) * (1 - u * (0.254829592 + u * (-0.284496736 + u * (1.421413741 + u * (-1.453152027 + "
    "u * 1.061405429)))) * Math.exp(-z * z))))(Math.abs(x) / Math.SQRT2, 1 / (1 + 0.3275911 * Math.abs(x) / Math.SQRT2));"
)
GELU = "0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x)));"
SEEN = "mask ? past + t + 1 : S"
SHORT = {"lengths": (1, 2, 17)}
# {check: ({what is wrong: (script, what stands there, what is put in its place)}, how the check is called)}
FAULTS = {
    "weights": (
        {
            "exponents one too low": ("gpt2.js", "2 ** (exponent - 15)", "2 ** (exponent - 16)"),
            "the smallest numbers are 0": ("gpt2.js", "(fraction / 1024) * 2 ** -14", "0"),
            "no signs": ("gpt2.js", "half >> 15 ? -1 : 1", "1"),
            "the other byte first": ("gpt2.js", "bytes[2 * i] | (bytes[2 * i + 1] << 8)", "(bytes[2 * i] << 8) | bytes[2 * i + 1]"),
            "six bits lost": ("gpt2.js", "(six(i + 2) << 6) | six(i + 3)", "(six(i + 2) << 6)"),
        },
        {},
    ),
    "logits": (
        {
            "sees one position too many": ("gpt2.js", SEEN, "mask ? Math.min(S, past + t + 2) : S"),
            "does not see itself": ("gpt2.js", SEEN, "mask ? Math.max(1, past + t) : S"),
            "no mask": ("gpt2.js", SEEN, "S"),
            "no scaling": ("gpt2.js", "sum / Math.sqrt(dh)", "sum"),
            "scaled by the model's width": ("gpt2.js", "sum / Math.sqrt(dh)", "sum / Math.sqrt(d)"),
            "no final norm": ("gpt2.js", 'layerNorm(x, model, "ln_f")', "x"),
            "the first norm twice": ("gpt2.js", "layerNorm(x, model, `h.${layer}.ln_2`)", "layerNorm(x, model, `h.${layer}.ln_1`)"),
            "the error function's GELU": ("gpt2.js", GELU, ERF),
            "the variance of a sample": ("gpt2.js", "** 2 / d;", "** 2 / (d - 1);"),
            "another epsilon": ("gpt2.js", "variance + epsilon", "variance + 100 * epsilon"),
            "no biases": ("gpt2.js", "y.set(b, t * m);", ";"),
            "values in the place of keys": ("gpt2.js", "columns(qkv, 3 * d, d, d)", "columns(qkv, 3 * d, 2 * d, d)"),
            "one head's values for all": ("gpt2.js", "v[s * d + head * dh + i]", "v[s * d + i]"),
            "no residual": ("gpt2.js", "x[i] += y[i];", "x[i] = y[i];"),
            "two positions with one input": ("gpt2.js", "z[j] += b0 * w0", "z[j] += a0 * w0"),
            "no positions": ("gpt2.js", "positions[(past + t) * d + i]", "positions[i]"),
            "the first row as the last": (
                "gpt2.js",
                "x.subarray(x.length - model.config.n_embd)",
                "x.subarray(0, model.config.n_embd)",
            ),
        },
        SHORT,
    ),
    "without_mask": ({"the switch does nothing": ("gpt2.js", SEEN, "past + t + 1")}, {}),
    "cache": (
        {
            "positions from 0 at each call": ("gpt2.js", "embed(model, ids, cache.length)", "embed(model, ids, 0)"),
            "the mask from 0 at each call": ("gpt2.js", SEEN, "mask ? t + 1 : S"),
            "new positions see all new ones": ("gpt2.js", SEEN, "mask && !past ? t + 1 : S"),
            "keys written over the first": (
                "gpt2.js",
                "k.set(columns(qkv, 3 * d, d, d), past * d);",
                "k.set(columns(qkv, 3 * d, d, d));",
            ),
            "values written one place late": ("gpt2.js", "2 * d, d), past * d);", "2 * d, d), past ? past * d - d : 0);"),
            "a length that counts calls": ("gpt2.js", "cache.length += ids.length;", "cache.length += 1;"),
        },
        {"pieces": ((3, 1, 17, 2),)},
    ),
    "traces": (
        {
            "the scores in the place of the weights": ("gpt2.js", "= scores[s] / sum;", "= scores[s];"),
            "the sum in the place of the mean": ("gpt2.js", "a + b * b, 0) / d)", "a + b * b, 0))"),
            "sizes before the layer": (
                "gpt2.js",
                "block(x, model, layer, cache, mask, trace); // [T, d]",
                "const y = x.slice(); block(y, model, layer, cache, mask, trace);",
            ),
        },
        {},
    ),
    "influences": (
        {
            "another id is another one": ("gpt2.js", "Math.floor(V / 2)", "1"),
            "the last change, not the largest": ("gpt2.js", "Math.max(column[at], ", "Math.max(0, "),
            "rows for columns": ("gpt2.js", "table[i * T + j]", "table[j * T + i]"),
            "sees one position too many": ("gpt2.js", SEEN, "mask ? Math.min(S, past + t + 2) : S"),
        },
        {},
    ),
    "token_ids": (
        {
            "the highest rank first": ("bpe.js", "rank < lowest", "rank < Infinity && (lowest === Infinity || rank > lowest)"),
            "the last of equal pairs": ("bpe.js", "rank < lowest", "rank <= lowest && rank < Infinity"),
            "merges from the front": (
                "bpe.js",
                "if (rank < lowest) [lowest, at]",
                "if (rank < Infinity && lowest === Infinity) [lowest, at]",
            ),
            "no English endings": ("bpe.js", "'s|'t|'re|'ve|'m|'ll|'d", "'s|'t|'re|'ve|'m|'d"),
            "no last blank left for a word": ("bpe.js", "`${blank}+(?!${sign})`, ", ""),
            "JavaScript's own white space": ("bpe.js", '["\\\\p{White_Space}", "\\\\P{White_Space}"]', '["\\\\s", "\\\\S"]'),
            "the browser's own letters": ("bpe.js", "wordPattern(characters(facts.letters),", 'wordPattern("\\\\p{L}",'),
            "a special token is cut": ("bpe.js", "Object.keys(whole)", "Object.keys({})"),
            "a mark at the beginning is lost": ("bpe.js", '"utf-8", { ignoreBOM: true }).decode(new', '"utf-8").decode(new'),
            "and lost when decoded": ("bpe.js", '"utf-8", { ignoreBOM: true }).decode(bytes)', '"utf-8").decode(bytes)'),
        },
        {},
    ),
    "decoded": (
        {
            "each piece by itself": (
                "bpe.js",
                'new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes)',
                "given.map((id) => new TextDecoder().decode(Uint8Array.from(bytesOf(id)))).join('')",
            )
        },
        {},
    ),
    "uncached": (
        {
            "the prompt is forgotten": (
                "sampling.js",
                "text.slice(cache.length)",
                "text.slice(cached ? cache.length : 1)",
            ),
            "the whole text into the cache": (
                "sampling.js",
                "text.slice(cache.length)",
                "text.slice(cache.length ? 1 : 0)",
            ),
            "a draw at temperature 0": (
                "sampling.js",
                "temperature === 0 ? lab.argmax(logits) : ",
                "temperature === 0 ? lab.draw(lab.probabilities(logits), generator) : ",
            ),
        },
        {"tokens": 10},
    ),
    "filters": (
        {
            "the token that crosses p goes": (
                "sampling.js",
                "mass += probability[id];",
                "mass += probability[id]; if (mass - probability[order[0]] < 1 - p) left[id] = -Infinity;",
            ),
            "one too few at equality": ("sampling.js", "<= Math.fround(1 - p)", "< Math.fround(1 - p)"),
            "p for 1 - p": ("sampling.js", "<= Math.fround(1 - p)", "<= Math.fround(p)"),
            "the best may go": ("sampling.js", "order.slice(1).reverse()", "order.slice().reverse()"),
            "one more than k": ("sampling.js", "slice(k)", "slice(k + 1)"),
            "of equal ones the higher": ("sampling.js", "logits[b] - logits[a] || 0", "logits[b] - logits[a] || b - a"),
            "times the temperature": ("sampling.js", "Math.fround(x - top) / temperature", "Math.fround(x - top) * temperature"),
            "divided before the largest is taken off": (
                "sampling.js",
                "Math.fround(x - top) / temperature",
                "Math.fround(x / temperature) - Math.fround(top / temperature)",
            ),
            "top-p before top-k": (
                "sampling.js",
                "left = keepTopP(left, topP)",
                "left = keepTopP(withTemperature(logits, temperature), topP)",
            ),
        },
        {},
    ),
    "draws": (
        {
            "the words the other way round": (
                "sampling.js",
                "((next() % 2 ** 21) * 2 ** 32 + next())",
                "(next() + (next() % 2 ** 21) * 2 ** 32)",
            ),
            "the upper bits": ("sampling.js", "next() % 2 ** 21", "(next() >>> 11)"),
            "a bit lost in the seed": ("sampling.js", "seed % 2 ** 32", "seed % 2 ** 31"),
            "not made anew": ("sampling.js", "if (used === 624) twist();", "if (used === 624) used = 0;"),
            "an id of probability 0": ("sampling.js", "if (sum > below) return id;", "if (sum >= below) return id;"),
        },
        {"count": 700},
    ),
}


class InThePage(unittest.TestCase):
    """All checks on the scripts as they are, then each on scripts with a fault."""

    @classmethod
    def setUpClass(cls):
        driver = the_browser()
        cls.page = web_model.Page(driver, Path(cls.enterClassContext(tempfile.TemporaryDirectory())))

    def check(self, name, **options):
        return getattr(web_model, name)(self.page, **options)

    def test_the_weights_are_those_of_the_model_in_float16(self):
        self.assertEqual(self.check("weights"), 3_487_232)

    def test_logits(self):
        self.assertEqual(list(self.check("logits")), [1, 2, 17, 255, 256])
        self.check("without_mask")

    def test_the_cache(self):
        self.assertLess(self.check("cache")["plain"], 1e-5)

    def test_attention_and_sizes(self):
        self.check("traces")

    def test_influence(self):
        self.check("influences")

    def test_ids(self):
        self.assertEqual(self.check("token_ids"), 2000)
        self.check("decoded")

    def test_greedy_text(self):
        self.assertGreater(self.check("greedy"), 900)

    def test_sampled_text(self):
        self.assertGreater(self.check("sampled"), 900)

    def test_text_without_the_cache(self):
        self.check("uncached")

    def test_probabilities_and_draws(self):
        self.check("filters")
        self.check("draws")

    def test_planted_faults(self):
        for check, (faults, options) in FAULTS.items():
            for what, (script, right, wrong) in faults.items():
                text = web_model.source(script)
                self.assertEqual(text.count(right), 1, f"{what}: {script} does not hold {right!r} once")
                with self.subTest(check=check, fault=what):
                    try:
                        self.page.run(script, text.replace(right, wrong))
                        with self.assertRaises(AssertionError):
                            self.check(check, **options)
                    finally:
                        self.page.run(script, text)
        self.check("logits", **SHORT)  # the page is itself again

    def test_what_cannot_be_computed_is_said_in_one_line(self):
        cases = {
            "lab.forward(model, [])": "there are no tokens; give at least one",
            "lab.forward(model, new Array(257).fill(1))": "257 tokens are more than the model's 256 positions; give a shorter text",
            "lab.forward(model, [1024])": "id 1024 is outside the vocabulary, 0 to 1023",
            "lab.forward(model, [1.5])": "id 1.5 is outside the vocabulary, 0 to 1023",
            "const full = {...lab.newCache(model), length: 255}; lab.forwardCached(model, [1, 2], full)": (
                "257 tokens are more than the model's 256 positions; give a shorter text"
            ),
            "lab.loadModel({config: {}})": "the model's weights are not here; weights.js did not load",
            "lab.loadModel({...book_model, data: book_model.data.slice(0, 400)})": (
                "weights.js is cut short: it ends before wte.weight; load the page again"
            ),
            "tokenizer.decode([1024])": "id 1024 is outside the vocabulary, 0 to 1023",
            "lab.probabilities(new Float32Array(4), {temperature: -1})": "the temperature is -1; give a number from 0",
            "lab.probabilities(new Float32Array(4), {topK: 0})": "top-k is 0; give a whole number from 1",
            "lab.probabilities(new Float32Array(4), {topP: 1.5})": "top-p is 1.5; give a number above 0 and up to 1",
            "lab.probabilities(Float32Array.of(1, NaN))": "the logits hold NaN or infinity, so no token has a probability",
            "lab.generator(-1)": "the seed is -1; give a whole number from 0",
        }
        for code, said in cases.items():
            found = self.page.js(f"try {{ {code}; return null; }} catch (error) {{ return error.message; }}")
            self.assertEqual(found, said, code)

    def test_a_text_ends_at_an_end_token_and_at_the_last_position(self):
        end = loaded().tokenizer.token_to_id("<|endoftext|>")
        code = """const ended = {...model, ends: [arguments[0]]};
          return Array.from(lab.generate(ended, [0], 300), (step) => [step.id, step.ended])"""
        first = self.page.js("return lab.argmax(lab.forward(model, [0], {last: true}))")
        self.assertEqual(self.page.js(code, first), [[first, True]])
        self.assertEqual(self.page.js("return model.ends"), [end])
        self.assertEqual(len(self.page.js(code, -1)), 256)
        self.assertEqual(len(self.page.js("return Array.from(lab.generate(model, new Array(256).fill(5), 9))")), 1)

    def test_ids_as_a_reader_sees_them(self):
        shown = self.page.js("return tokenizer.encode(arguments[0]).map(tokenizer.text)", "to be\n\né\t<|endoftext|>")
        self.assertEqual("".join(shown), "to␣be⏎⏎0xC30xA90x09<|endoftext|>")


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.sizes = write_model_files(cls.folder)

    def test_two_builds_give_the_same_bytes(self):
        for name, text in model_files(loaded()).items():
            self.assertEqual((self.folder / name).read_bytes(), text.encode(), name)
            self.assertEqual(self.sizes[name], len(text))

    def test_their_size(self):
        self.assertEqual(list(self.sizes), [TOKENIZER, WEIGHTS])
        self.assertLess(self.sizes[TOKENIZER], 25_000)
        self.assertLess(self.sizes[WEIGHTS], 9_400_000)

    def test_letters_and_digits_are_the_librarys(self):
        text = (self.folder / TOKENIZER).read_text(encoding="ascii").removeprefix("var book_model = ").rstrip(";\n")
        facts, cut = json.loads(text)["tokenizer"], loaded().tokenizer.pre_tokenizer
        letters, digits = (set(_expanded(facts[kind])) for kind in ("letters", "digits"))
        self.assertEqual(json.loads(text)["bytes"], self.sizes[WEIGHTS])
        self.assertTrue(letters.isdisjoint(digits))
        for code in (*range(0x400), *range(0x1C80, 0x1C90), 0x4E00, 0x10FFFF, 0x1D7D8):
            for kind, beside in ((letters, "a"), (digits, "1")):
                words = cut.pre_tokenize_str(beside + chr(code) + beside)
                self.assertEqual(code in kind, len(words) == 1, (hex(code), beside))

    def test_another_kind_of_gpt2_is_refused(self):
        model = loaded()
        for changes in (
            dict(scale_attn_by_inverse_layer_idx=True),
            dict(activation_function="gelu"),
            dict(tie_word_embeddings=False),
        ):
            with self.assertRaisesRegex(BadInput, next(iter(changes))):
                model_files(replace(model, config=replace(model.config, **changes)))


def _expanded(runs):
    next = 0
    for others, such in zip(runs[::2], runs[1::2], strict=True):
        yield from range(next + others, next + others + such)
        next += others + such


if __name__ == "__main__":
    unittest.main()
