"""Every script runs as a file from another folder, and as a module, without the repository on Python's path: in one process, since
each of its own would load torch for seconds."""

import json
import re
import unittest

from tests.support import ROOT, FolderCase, slow, start

# Runs each script as Python does: its own folder first on the path, none of our modules loaded, its name __main__.
DRIVER = """
import contextlib, io, json, os, runpy, sys
base = [p for p in sys.path if p and os.path.realpath(p) != os.path.realpath(os.getcwd())]
for target, argv in json.loads(sys.argv[1]):
    for name in [n for n in sys.modules if n.split(".")[0] in ("examples", "scripts")]:
        del sys.modules[name]
    as_file = target.endswith(".py")
    sys.path[:] = [os.path.dirname(target) if as_file else os.environ["ROOT"], *base]
    sys.argv = [target, *argv]
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            (runpy.run_path if as_file else runpy.run_module)(target, run_name="__main__")
        except SystemExit as stop:
            status = stop.code
        except BaseException as error:
            status = repr(error)
    heavy = [n for n in ("transformers", "matplotlib", "huggingface_hub") if n in sys.modules]
    print(json.dumps([target, argv, status, out.getvalue(), err.getvalue(), heavy]))
"""
SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix()
    for room in ("examples", "scripts")
    for path in (ROOT / room).rglob("*.py")
    if re.search(r"^def main\(", path.read_text(encoding="utf-8"), re.M)
)
WITHOUT_ARGUMENTS = [f"examples/ch04/{name}.py" for name in ("tiny_transformer", "cost_model", "tensor_sizes", "causal_mask")]


def drive(runs, cwd):
    """[(target, argv, status, out, err, heavy)] of `runs`, (target, arguments) each, in one process that stands in `cwd`."""
    done = start("-c", DRIVER, json.dumps(runs), cwd=cwd, ROOT=str(ROOT))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@slow
class EveryScript(FolderCase):
    @classmethod
    def setUpClass(cls):
        import tempfile

        runs = [(str(ROOT / path), [option]) for path in SCRIPTS for option in ("--help", "--no-such-option")]
        runs += [(str(ROOT / path), []) for path in WITHOUT_ARGUMENTS]
        runs += [("examples.ch04.cost_model", []), ("examples.ch04.tour", ["--model", "nowhere"])]
        with tempfile.TemporaryDirectory() as folder:
            cls.found = {(target, *argv): rest for target, argv, *rest in drive(runs, folder)}

    def test_there_are_many(self):
        self.assertGreater(len(SCRIPTS), 20)

    def test_help_from_another_folder(self):
        for path in SCRIPTS:
            status, out, err, _ = self.found[str(ROOT / path), "--help"]
            with self.subTest(path):
                self.assertEqual((status, err), (0, ""))
                self.assertTrue(out.startswith(f"usage: {path.rpartition('/')[2]}"), out[:80])

    def test_importing_does_no_work(self):
        """transformers and matplotlib are imported where they are used, not where a script starts."""
        for path in SCRIPTS:
            self.assertEqual(self.found[str(ROOT / path), "--help"][3], [], path)

    def test_what_is_not_known_is_one_line(self):
        for path in SCRIPTS:
            status, out, err, _ = self.found[str(ROOT / path), "--no-such-option"]
            with self.subTest(path):
                self.assertEqual((status, out, len(err.splitlines())), (2, "", 1), err)
                self.assertIn("--no-such-option", err)
        status, out, err, _ = self.found["examples.ch04.tour", "--model", "nowhere"]
        self.assertEqual((status, out, len(err.splitlines())), (2, "", 1), err)

    def test_a_result_with_no_arguments(self):
        for path in WITHOUT_ARGUMENTS:
            status, out, err, _ = self.found[(str(ROOT / path),)]
            self.assertEqual((status, err), (0, ""), path)
            self.assertGreater(len(out.splitlines()), 10)

    def test_as_a_module_it_is_the_same(self):
        as_file = self.found[(str(ROOT / "examples/ch04/cost_model.py"),)]
        self.assertEqual(self.found[("examples.ch04.cost_model",)][:3], as_file[:3])

    def test_the_driver_sees_what_fails(self):
        path = self.folder / "wrong.py"
        path.write_text("import examples")  # which is not on the path of a script that lies elsewhere
        ((_, _, status, _, _, _),) = drive([(str(path), [])], self.folder)
        self.assertIn("No module named 'examples'", status)


if __name__ == "__main__":
    unittest.main()
