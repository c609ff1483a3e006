"""Chapter 1: a request timed: the stopwatch's sums, the library's text, the script's answers, the estimate, what is refused."""

import contextlib
import dataclasses
import hashlib
import json
import shutil
import types
import unittest
from unittest import mock

import torch

from examples.ch01 import estimate, library, request
from examples.ch01.library import encode, load_library, random_ids, serve
from examples.ch01.record import Stopwatch, artefact, read, request_record, sums
from examples.ch02.model import PUBLISHED, load_config
from examples.ch04.cost_model import flops_per_pass, flops_per_token, parameter_count
from examples.lab.environment import EMBEDDED
from examples.lab.script import BadInput
from tests.rooms import RoomCase
from tests.standin_hub import COMMIT, StandInHub, needs_loopback
from tests.support import FolderCase, G, call, config, slow, start, weights, write_folder

RECORD = {"artefact": {}, "threads": 1, "dtype": "float32"}


def setUpModule():
    torch.set_num_threads(1)


class Clock:
    """A timer that stands still but for `seconds` a call and what is added by hand."""

    def __init__(self, seconds=0.0):
        self.now, self.seconds = 100.0, seconds

    def __call__(self):
        self.now += self.seconds
        return self.now


class Sums(unittest.TestCase):
    def timed(self):
        """A stopwatch on a clock of our own: 2 s of load, twice 1 s of decode, and 0.5 s that no stage claims."""
        clock = Clock()
        watch = Stopwatch(clock)
        for name, seconds in (("load", 2.0), ("decode", 1.0), ("decode", 1.0)):
            with watch.stage(name):
                clock.now += seconds
        clock.now += 0.5
        return watch

    def test_stages_and_what_is_unexplained_make_the_whole(self):
        watch = self.timed()
        self.assertEqual((watch.stages, watch.seconds()), ({"load": [2.0], "decode": [1.0, 1.0]}, 4.5))
        record = request_record("x", 1, 3, watch.stages, watch.seconds(), **RECORD)
        self.assertEqual((record["unexplained"], record["seconds"]), (0.5, 4.5))
        self.assertIsNone(sums(record))

    def test_a_stage_counted_twice_is_seen(self):
        watch = self.timed()
        twice = {**watch.stages, "decode": watch.stages["decode"] * 2}
        with self.assertRaisesRegex(ValueError, "claim 6.000000 s of 4.500000 s, so one of them is counted twice"):
            request_record("x", 1, 3, twice, watch.seconds(), **RECORD)
        record = request_record("x", 1, 3, watch.stages, watch.seconds(), **RECORD)
        self.assertIn("counted twice", sums(record | {"stages": twice}))
        half = {**watch.stages, "sample": [0.25]}  # less than what was unexplained: the sum tells
        self.assertIn("make 4.750000 s, and the whole is 4.500000 s", sums(record | {"stages": half}))
        for wrong in ({"unexplained": -0.1}, {"unexplained": 0.4}, {"seconds": 4.4}, {"stages": {"load": [5.0], "decode": [-1.0]}}):
            self.assertTrue(sums(record | wrong), wrong)

    def test_a_stage_within_a_stage_is_refused(self):
        watch = Stopwatch(Clock(1.0))
        with self.assertRaisesRegex(RuntimeError, "sample begins within decode"), watch.stage("decode"), watch.stage("sample"):
            pass
        self.assertEqual(set(watch.stages), {"decode"})

    def test_rounding_of_the_clock_is_no_fault(self):
        stages = {"decode": [0.1] * 10}
        for more in (0.0, -1e-9, 1e-9):
            self.assertIsNone(sums(request_record("x", 1, 10, stages, 1.0 + more, **RECORD)))
        with self.assertRaises(ValueError):
            request_record("x", 1, 10, stages, 1.0 - 1e-3, **RECORD)


class Artefact(FolderCase):
    def test_digests(self):
        folder = write_folder(self.folder / "a")
        files = [folder / "config.json", folder / "model.safetensors"]
        found = artefact("a", files)
        digest = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
        self.assertEqual((found["sha256"], found["config_sha256"]), (digest["model.safetensors"], digest["config.json"]))
        self.assertEqual({row["name"]: row["sha256"] for row in found["files"]}, digest)
        files[0].write_text(json.dumps(G | {"n_head": 4}))
        changed = artefact("a", files)
        self.assertNotEqual(changed["config_sha256"], found["config_sha256"])
        self.assertEqual(changed["sha256"], found["sha256"])

    def test_shards_and_what_is_in_no_file(self):
        for name in ("model-1.safetensors", "model-2.safetensors"):
            (self.folder / name).write_bytes(name.encode())
        files = [self.folder / f"model-{i}.safetensors" for i in (1, 2)]
        both = artefact("a", files)["sha256"]
        files[1].write_bytes(b"another")
        self.assertNotEqual(artefact("a", files)["sha256"], both)
        random = artefact("random:gpt2", config={"b": 1, "a": 2}, seed=7)
        self.assertEqual((random["sha256"], random["seed"], random["files"]), (None, 7, []))
        self.assertEqual(random["config_sha256"], artefact("x", config={"a": 2, "b": 1})["config_sha256"])


class Served(FolderCase):
    @classmethod
    def setUpClass(cls):
        cls.library = load_library()

    def generated(self, ids, tokens, library=None):
        library = library or self.library
        with torch.inference_mode():
            made = library.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False)
        return made[0, ids.shape[1] :].tolist()

    def test_the_text_is_that_of_the_library_s_own_generate(self):
        for prompt in (request.PROMPT, "JULIET:", "a", "\N{SNOWMAN} and\n\n\n"):
            served = serve(self.library, prompt, 40)
            ids = encode(self.library, prompt)
            self.assertEqual(served.prompt, ids[0].tolist())
            self.assertEqual(served.new, self.generated(ids, 40), prompt)
            self.assertEqual(served.text, self.library.tokenizer.decode(served.new))

    def test_planted_faults(self):
        """A cache that is left out, and one that is not fed the last token, give other texts."""
        ids = encode(self.library, request.PROMPT)
        wanted, model = self.generated(ids, 40), self.library.model
        for fault in (
            lambda step, use_cache, cache=None: model(step, use_cache=True),
            lambda step, use_cache, cache=None: model(ids[:, :1] if cache else step, cache=cache, use_cache=True),
        ):
            broken = dataclasses.replace(self.library, model=mock.Mock(side_effect=fault, config=model.config))
            self.assertNotEqual(serve(broken, ids, 40).new, wanted)
            with mock.patch.object(request, "load_library", return_value=broken):
                self.assertFalse(request.measure_steps("embedded")["held"])

    def test_it_stops_where_a_text_ends(self):
        ids = encode(self.library, request.PROMPT)
        made = self.generated(ids, 40)
        ends = dataclasses.replace(self.library, ends=frozenset({made[5]}))
        at = made.index(made[5]) + 1
        self.assertEqual(serve(ends, ids, 40).new, made[:at])
        self.assertEqual(serve(ends, ids, 40, stop=False).new, made)
        self.assertEqual(self.library.ends, {1023})

    def test_stages(self):
        served = serve(self.library, request.PROMPT, 3)
        times = {name: len(seconds) for name, seconds in served.stages.items()}
        self.assertEqual(times, {"tokenise": 1, "prefill": 1, "decode": 2, "sample": 3, "detokenise": 1})
        self.assertEqual(len(served.steps), 3)
        served = serve(self.library, random_ids(self.library, 4), 1)
        self.assertEqual(set(served.stages), {"prefill", "sample", "detokenise"})

    def test_a_slow_pass_is_in_its_stage(self):
        model, clock = self.library.model, Clock()

        def slow_pass(step, **options):
            clock.now += 5.0 if step.shape[1] > 1 else 1.0
            return model(step, **options)

        slowed = dataclasses.replace(self.library, model=mock.Mock(side_effect=slow_pass, config=model.config))
        served = serve(slowed, request.PROMPT, 4, Stopwatch(clock))
        self.assertEqual((served.stages["prefill"], served.stages["decode"], served.seconds), ([5.0], [1.0] * 3, 8.0))
        self.assertEqual(served.steps, [(5.0, 0.0), (1.0, 0.0), (1.0, 0.0), (1.0, 0.0)])

    def test_the_scores_of_the_steps(self):
        found = request.measure_steps("embedded")
        self.assertTrue(found["held"])
        self.assertLess(found["worst"], 1e-5)
        nudge = torch.zeros(1024)
        nudge[0] = 0.01
        with mock.patch.object(request, "largest", side_effect=lambda x: (x + nudge if x.ndim == 1 else x).abs().max().item()):
            self.assertFalse(request.measure_steps("embedded")["held"])

    def test_random_weights(self):
        with mock.patch.dict(library.SIZES, tiny=(2, 16, 2)):
            state = torch.random.get_rng_state()
            one, same, other = (load_library("random:tiny", seed=seed) for seed in (0, 0, 1))
            self.assertTrue(torch.equal(torch.random.get_rng_state(), state))
        tables = [m.model.transformer.wte.weight for m in (one, same, other)]
        self.assertTrue(torch.equal(tables[0], tables[1]))
        self.assertFalse(torch.equal(tables[0], tables[2]))
        self.assertEqual((one.tokenizer, one.ends, one.about["seed"]), (None, frozenset(), 0))
        ids = random_ids(one, 5)
        self.assertEqual(serve(one, ids, 9).new, self.generated(ids, 9, one))
        self.assertEqual(PUBLISHED["gpt2"], library.published("gpt2"))  # one table for chapters 1 and 2


class Refusals(FolderCase):
    def test_models_that_are_not_whole(self):
        good = write_folder(self.folder / "good")
        self.assertIsNone(load_library(str(good)).tokenizer)
        tensors = weights()
        del tensors["h.1.mlp.c_fc.bias"]  # which the library would fill in by itself
        bad = write_folder(self.folder / "lost", tensors)
        with self.assertRaisesRegex(BadInput, "h.1.mlp.c_fc.bias"):
            load_library(str(bad))
        cut = write_folder(self.folder / "cut")
        (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:-4])
        with self.assertRaisesRegex(BadInput, "cannot load"):
            load_library(str(cut))
        pickled = self.folder / "pickled"
        shutil.copytree(good, pickled)
        (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
        with self.assertRaisesRegex(BadInput, "only read from safetensors"):
            load_library(str(pickled))
        index = {"weight_map": {"wte.weight": "model-00001-of-00002.safetensors"}}
        (pickled / library.INDEX).write_text(json.dumps(index))
        with self.assertRaisesRegex(BadInput, "no model-00001-of-00002.safetensors"):
            load_library(str(pickled))
        (self.folder / "a.gguf").write_bytes(b"GGUF")
        with self.assertRaisesRegex(BadInput, "cannot load"):
            load_library(str(self.folder / "a.gguf"))

    def test_prompts_without_room(self):
        tiny = load_library(str(write_folder(self.folder / "a", weights(config()), G)))
        self.assertEqual(len(serve(tiny, torch.tensor([[7]]), 16, stop=False).new), 16)
        for prompt, tokens, word in ((1, 17, "at most 16"), (17, 1, "shorter prompt")):
            with self.assertRaisesRegex(BadInput, word):
                serve(tiny, torch.ones(1, prompt, dtype=torch.int64), tokens)


class Script(RoomCase):
    def test_json_is_what_is_measured(self):
        value = self.values(request.main, "--tokens", "6")
        v = value["request"]
        self.assertEqual((v["prompt_tokens"], v["output_tokens"], v["runs"], v["cold"]), (18, 6, 1, True))
        self.assertEqual([r["stage"] for r in v["stages"]], [*request.STAGES[1:], "unexplained"])
        self.assertEqual([r["times"] for r in v["stages"]], [1, 1, 5, 6, 1, 1])
        self.assertAlmostEqual(sum(r["percent"] for r in v["stages"]), 100, places=4)
        self.assertAlmostEqual(sum(r["ms"] for r in v["stages"]), v["request_ms"], places=2)
        self.assertEqual([r["step"] for r in v["steps"]], [1, 2, 3, 4, 5, 6])
        self.assertEqual(v["text"], " have a children")
        self.assertEqual(v["first_request_ms"], v["request_ms"])

    def test_medians_leave_the_first_out(self):
        seconds = iter([50.0, 1.0, 2.0, 9.0])

        def served(lib, prompt, tokens, watch=None):
            whole, load = next(seconds), watch.stages["load"][0] if watch else 0.0
            stages = {**({"load": [load]} if watch else {}), "prefill": [0.5], "decode": [whole - 0.75], "sample": [0.125, 0.0]}
            return library.Served([1, 2], [3, 4], "x", stages, whole + load)

        with mock.patch.object(request, "serve", served):
            v = request.measure("embedded", runs=3)
        self.assertAlmostEqual(v["request_ms"], 2000.0)
        self.assertAlmostEqual(v["first_request_ms"], 50000.0, places=3)
        self.assertAlmostEqual(v["decode_step_ms"], 1250.0)
        self.assertAlmostEqual(v["passes_percent"], 87.5)
        self.assertAlmostEqual(v["unexplained_percent"], 6.25)
        self.assertEqual(v["steps"][0], {"step": 1, "pass_ms": 500.0, "choose_ms": 125.0})

    def test_pages(self):
        for argv in ((), ("--runs", "2"), ("--tokens", "1")):
            page = self.page(request.main, *argv)
            self.assertIn("per cent of the request", page)
        self.assertIn("medians of 2 requests after the first", self.page(request.main, "--tokens", "3", "--runs", "2"))
        self.assertIn("random ids", request.options().format_help())
        page = self.page(request.main, "--model", self.tiny(), "--tokens", "4")
        self.assertNotIn("tokenise", page)  # nothing is there to tokenise with

    def test_figure(self):
        path, again = self.folder / "a.svg", self.folder / "b.svg"
        value = request.measure("embedded", tokens=4, runs=1)
        for target in (path, again):
            request.draw(value, target)
        self.assertEqual(path.read_bytes(), again.read_bytes())
        self.assertIn(f"plot: {path}", call(request.main, "--tokens", "3", "--plot", path)[1])

    def test_records(self):
        path = self.folder / "r.jsonl"
        self.assertEqual(call(request.main, "--tokens", "3", "--runs", "2", "--record", path)[0], 0)
        found, problems = read(path)
        self.assertEqual(([line for line, _ in found], problems), ([1, 2, 3], []))
        self.assertEqual([("load" in r["stages"]) for _, r in found], [True, False, False])
        record = found[0][1]
        self.assertEqual(record["artefact"]["sha256"], hashlib.sha256((EMBEDDED / "model.safetensors").read_bytes()).hexdigest())
        self.assertEqual(record["tokens"], {"prompt": 18, "output": 3})
        self.assertEqual((record["threads"], record["dtype"], record["program"]), (1, "float32", "transformers"))
        self.assertEqual(set(record["versions"]), {"python", "torch", "transformers"})
        self.assertEqual(set(record["machine"]), {"processor", "cores"})

    def test_bad_input(self):
        tiny, main = self.tiny(), request.main
        self.assertBad(main, ["--model", "nonsense"], "nonsense", "hub id")
        self.assertBad(main, ["--model", "random:gpt3"], "gpt3", "gpt2-xl")
        self.assertBad(main, ["--model", tiny, "--prompt", "a"], "no tokenizer", "leave --prompt out")
        self.assertBad(main, ["--prompt", ""], "empty")
        self.assertBad(main, ["--prompt", "\udcff"], "UTF-8")
        self.assertBad(main, ["--tokens", "0"], "0 is not 1 or more")
        self.assertBad(main, ["--tokens", "240"], "at most 239 tokens")
        self.assertBad(main, ["--model", "nonsense", "--record", self.folder / "none" / "r"], "not a folder")
        self.assertBad(main, ["--model", "nonsense", "--record", self.folder], "not a file")
        self.assertBad(main, ["--model", "nonsense", "--plot", "a.gif"], "a.gif")
        self.assertBad(main, ["show"], "show FILE")
        self.assertBad(main, ["show", self.folder / "none"], "does not exist")
        self.assertBad(main, ["show", self.folder], str(self.folder))
        self.assertBad(main, ["run", "x"], "show x")
        self.assertBad(main, ["tell"], "tell")

    @needs_loopback
    @slow
    def test_a_model_of_the_hub(self):
        made = write_folder(self.folder / "made")
        files = {name: (made / name).read_bytes() for name in ("config.json", "model.safetensors")}
        path = self.folder / "r.jsonl"
        settings = dict(HF_HOME=str(self.folder / "cache"), HF_HUB_OFFLINE="0", HF_TOKEN="", HF_HUB_DISABLE_XET="1")
        with contextlib.closing(StandInHub({"some/body": {**files, "pytorch_model.bin": b"no"}})) as server:
            order = ["examples/ch01/request.py", "--tokens", "3", "--record", path, "--model"]
            done = start(*order, "some/body@v1", HF_ENDPOINT=server.url, **settings)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(sorted(server.requested), ["some/body/config.json", "some/body/model.safetensors"])
            done = start(*order, "some/none", HF_ENDPOINT=server.url, **settings)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done.stderr)
        [(_, record)], _ = read(path)
        self.assertEqual(record["artefact"]["commit"], COMMIT)
        self.assertEqual(record["artefact"]["sha256"], hashlib.sha256(files["model.safetensors"]).hexdigest())


class Estimate(RoomCase):
    def test_as_chapter_4_counts(self):
        for size in library.SIZES:
            fields, of = library.published(size), load_config(size)
            self.assertEqual(estimate.weights(fields)["all"], parameter_count(of)["total"])
            for context in (1, 16, 18, 1024):
                self.assertEqual(estimate.flops(fields, context), flops_per_token(of, context)["total"])
        self.assertEqual(18 * estimate.flops(library.published("gpt2"), 18), flops_per_pass(load_config("gpt2"), 18)["total"])

    def test_what_was_published(self):
        e = estimate.measure_estimate()
        self.assertEqual([round(e[key], 2) for key in ("all_gflop", "multiplied_gflop", "at_context_gflop")], [0.25] * 3)
        self.assertEqual((round(e["at_context_gflop"], 3), round(e["head_mflop"]), round(e["head_mflop"], 1)), (0.248, 77, 77.2))
        self.assertEqual(round(e["head_percent"]), 31)

    def test_the_rate_is_work_over_time(self):
        with mock.patch.dict(library.SIZES, tiny=(2, 16, 2)):
            v = estimate.measure_rate("random:tiny", runs=2, timer=Clock(0.25))
        fields = library.published("gpt2") | {"n_layer": 2, "n_embd": 16}
        for row in v["lengths"]:
            self.assertEqual((row["ms"], row["ms_per_token"]), (250.0, 250.0 / row["tokens"]))
            self.assertAlmostEqual(row["gflop_per_s"], 4e-9 * row["tokens"] * estimate.flops(fields, row["tokens"]))
        self.assertAlmostEqual(v["measured_over_predicted"], v["gflop_per_s"] / v["one_token_gflop_per_s"])
        self.assertGreater(v["gflop_per_s"], 17 * v["one_token_gflop_per_s"])

    def test_script(self):
        self.assertMeasured(self.values(estimate.main), estimate=estimate.measure_estimate())
        self.assertIn("77.2 MFLOP", self.page(estimate.main))
        with mock.patch.dict(library.SIZES, tiny=(2, 16, 2)):
            order = ("--time", "--model", "random:tiny", "--runs", "1")
            self.assertIn("GFLOP/s", self.page(estimate.main, *order))
            self.assertEqual(set(self.values(estimate.main, *order)), {"ran_with", "estimate", "rate"})
            self.assertIn("plot: ", call(estimate.main, *order, "--plot", self.folder / "a.svg")[1])
        self.assertBad(estimate.main, ["--plot", self.folder / "a.svg"], "--time")
        self.assertBad(estimate.main, ["--time", "--model", "nonsense"], "nonsense")

    def test_another_family_is_refused(self):
        other = types.SimpleNamespace(model=mock.Mock(), positions=8)
        other.model.config.to_dict.return_value = {"model_type": "llama"}
        with mock.patch.object(estimate, "load_library", return_value=other), self.assertRaisesRegex(BadInput, "llama"):
            estimate.measure_rate("x")


if __name__ == "__main__":
    unittest.main()
