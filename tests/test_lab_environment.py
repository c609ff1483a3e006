"""Machines as people have them: what is drawn and computed depends on nothing outside the repository; `python -O` and `-OO` run."""

import ast
import json
import os
import subprocess
import sys
import unittest
from unittest import mock

from examples.ch02 import hub
from examples.ch03 import tokens
from examples.lab import figure as lab
from examples.lab.script import BadInput, Parser, command
from tests.support import ROOT, FolderCase, call, slow, start

NOTEBOOK = "module://matplotlib_inline.backend_inline"  # which IPython sets, and no script has
READERS = {  # a matplotlibrc of somebody's own
    **{"font.size": "20", "font.family": "serif", "axes.facecolor": "black", "lines.linewidth": "5", "axes.grid": "True"},
    **{"axes.prop_cycle": "cycler('color', ['r'])", "svg.fonttype": "none", "savefig.bbox": "tight", "text.usetex": "True"},
    **{"axes.formatter.use_locale": "True", "path.simplify": "False", "figure.autolayout": "True", "savefig.transparent": "True"},
}
DRAW = (
    "import sys; from examples.lab.figure import *\n"
    "figure, axes = new_figure((4, 3))\n"
    "axes.plot([1, 2000], [0.5, 3], marker='o', label='a line of $x^2$ — é')\n"
    "axes.set(xlabel='tokens', ylabel='seconds', title='A figure'); axes.legend()\n"
    "write_figure(figure, sys.argv[1])"
)
SCRIPTS = [
    path
    for path in sorted(ROOT.glob("examples/ch*/*.py")) + sorted(ROOT.glob("scripts/*.py"))
    if "\ndef main(" in path.read_text(encoding="utf-8")
]


class Figures(FolderCase):
    def drawn(self, where="here", kind="svg", **environment):
        """The bytes of the figure that a process of its own draws, in a folder of its own."""
        folder = self.folder / where
        folder.mkdir(exist_ok=True)
        done = start("-c", DRAW, folder / f"a.{kind}", cwd=folder, PYTHONPATH=str(ROOT), **environment)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return (folder / f"a.{kind}").read_bytes()

    def settings(self, where):
        """A reader's own settings, as matplotlibrc in the folder `where`."""
        folder = self.folder / where
        folder.mkdir(exist_ok=True)
        (folder / "matplotlibrc").write_text("".join(f"{key}: {value}\n" for key, value in READERS.items()))
        return str(folder)

    def here(self, kind="svg"):
        """The bytes of the figure drawn in this process."""
        path = self.folder / f"here.{kind}"
        with mock.patch.object(sys, "argv", ["", str(path)]):
            exec(DRAW, {})
        return path.read_bytes()

    @slow
    def test_the_readers_settings_and_the_notebooks_backend(self):
        plain = self.here()
        self.settings("cwd")
        for where, environment in (
            ("cwd", {"MPLBACKEND": NOTEBOOK}),  # matplotlibrc where the script is called
            ("named", {"MATPLOTLIBRC": self.settings("rc"), "MPLBACKEND": "no_such_backend"}),
            ("home", {"MPLCONFIGDIR": self.settings("config"), "MPLBACKEND": "tkagg"}),
            ("abroad", {"LC_ALL": "de_DE.UTF-8", "SOURCE_DATE_EPOCH": "0", "TZ": "Asia/Tokyo"}),
        ):
            with self.subTest(where):
                self.assertEqual(self.drawn(where, **environment), plain)

    def test_settings_of_the_process(self):
        """A notebook's own, which hold again once the figure is written; in each format."""
        import matplotlib

        for kind in lab.FORMATS:
            plain = self.here(kind)
            values = {key: value for key, value in READERS.items() if key != "axes.prop_cycle"}
            with matplotlib.rc_context({key: matplotlib.rcsetup._validators[key](value) for key, value in values.items()}):
                before = dict(matplotlib.rcParams)
                self.assertEqual(self.here(kind), plain)
                self.assertEqual(dict(matplotlib.rcParams), before)

    def test_the_fault(self):
        """Without the defaults of its own, a figure takes the reader's: the settings above are such that it shows."""
        import contextlib

        import matplotlib

        plain = self.here()
        lax = mock.patch.object(lab, "own_defaults", contextlib.nullcontext)
        with lax, matplotlib.rc_context({"font.size": 20, "svg.hashsalt": "inference-lab"}):
            self.assertNotEqual(self.here(), plain)

    def test_its_fonts(self):
        import matplotlib
        from matplotlib.font_manager import findfont, fontManager

        other = mock.Mock(fname="/elsewhere/DejaVuSans.ttf")
        with mock.patch.object(fontManager, "ttflist", [other, *fontManager.ttflist]), lab.own_defaults():
            carried = os.path.realpath(matplotlib.get_data_path())
            own = [os.path.realpath(font.fname).startswith(carried) for font in fontManager.ttflist]
            self.assertEqual(own, sorted(own, reverse=True))  # the reader's come after those that matplotlib carries
            self.assertFalse(own[fontManager.ttflist.index(other)])
            self.assertEqual(matplotlib.rcParams["font.family"], ["DejaVu Sans"])
        with lab.own_defaults():
            self.assertTrue(os.path.realpath(findfont("DejaVu Sans")).startswith(carried))

    @slow
    def test_settings_that_cannot_be_read(self):
        (self.folder / "matplotlibrc").write_bytes(b"font.size: 20 \xff\n")
        script = [ROOT / "examples/ch04/residual_trace.py", "--plot", self.folder / "a.svg"]
        done = start(*script, cwd=self.folder)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("error: matplotlib cannot be imported", done.stderr.splitlines()[-1])
        self.assertNotIn("Traceback", done.stderr)

    def test_one_place_imports_it(self):
        """Whoever imports matplotlib before `new_figure` has its import fail on a notebook's MPLBACKEND."""
        for path in SCRIPTS:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for function in ast.walk(tree):
                if not isinstance(function, (ast.FunctionDef, ast.Module)):
                    continue
                lines = {"matplotlib": [], "new_figure": []}
                for node in ast.walk(function):
                    if isinstance(node, (ast.Import, ast.ImportFrom)) and "matplotlib" in ast.unparse(node):
                        lines["matplotlib"].append(node.lineno)
                    if isinstance(node, ast.Call) and getattr(node.func, "id", None) in ("new_figure", "new_panels", "new_picture"):
                        lines["new_figure"].append(node.lineno)
                if lines["matplotlib"] and isinstance(function, ast.FunctionDef):
                    self.assertLess(min(lines["new_figure"]), min(lines["matplotlib"]), path)


class TheLibrary(unittest.TestCase):
    def test_one_place_imports_it(self):
        """`import_transformers` says in one line what keeps it from being imported; whoever imports it by himself does not."""
        importing = set()
        for path in [*ROOT.glob("examples/**/*.py"), *ROOT.glob("scripts/*.py")]:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [name.name for name in node.names] if isinstance(node, ast.Import) else []
                if any(name.partition(".")[0] == "transformers" for name in names):
                    importing.add(path.relative_to(ROOT).as_posix())
        self.assertEqual(importing, {"examples/lab/environment.py"})


# What runs in a process without docstrings: each script's help, and two scripts that compute.
RUN_ALL = """
import contextlib, importlib, io, json, sys
failed = {}
for name in sys.argv[1:]:
    try:
        module = importlib.import_module(name)
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                status = module.main(["--help"])
            except SystemExit as stop:
                status = stop.code
        if status:
            failed[name] = status
    except BaseException as error:
        failed[name] = repr(error)
with contextlib.redirect_stdout(io.StringIO()) as out:
    from examples.ch03 import tokens
    status = tokens.main(["--text", "the boat"])
print(json.dumps({"failed": failed, "tokens": status, "out": out.getvalue()}))
"""


class Optimised(FolderCase):
    @slow
    def test_every_script_runs(self):
        names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in SCRIPTS]
        self.assertGreater(len(names), 30)
        expected = call(tokens.main, "--text", "the boat")
        for flag in ("-O", "-OO"):
            done = start(flag, "-c", RUN_ALL, *names)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout), {"failed": {}, "tokens": 0, "out": expected[1]}, flag)

    @slow
    def test_what_needs_the_library_says_so(self):
        """transformers makes its classes from docstrings, and cannot be imported without them."""
        for how in (dict(PYTHONOPTIMIZE="2"),):
            done = start(ROOT / "examples/ch04/tour.py", cwd=self.folder, **how)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("error: transformers cannot be imported under python -OO", done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_a_parser_without_a_docstring(self):
        text = Parser(prog="a.py", description=None).add("json").format_help()
        self.assertIn("--json", text)
        text = Parser(
            prog="a.py", description="What it is.\n\n    python a.py  # so\n    python a.py --json\n\nMore."
        ).format_help()
        for part in ("What it is.", "examples:\n  python a.py  # so\n  python a.py --json"):
            self.assertIn(part, text)
        self.assertNotIn("More.", text)

    def test_no_check_is_an_assert(self):
        """`python -O` takes asserts away: what has to hold is raised."""
        found = []
        for path in sorted([*ROOT.glob("examples/**/*.py"), *ROOT.glob("scripts/*.py")]):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Assert) or (isinstance(node, ast.Name) and node.id == "__debug__"):
                    found.append(f"{path.name}:{node.lineno}: an assert")
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "__doc__":
                    found.append(f"{path.name}:{node.lineno}: __doc__.{node.attr}, which may be None")
        self.assertEqual(found, [])


class Packages(FolderCase):
    """One that is not installed is one line, whichever it is; a module of ours that is not there is a defect."""

    def test_each_that_is_imported_late(self):
        from examples.ch04 import agreement, residual_trace
        from tests.gguf_writer import write
        from tests.support import llama_model, write_folder

        path = write(self.folder / "m.gguf", llama_model(head_dim=8))
        folder = write_folder(self.folder / "a")
        for package, main, argv in (
            ("matplotlib", residual_trace.main, ["--model", folder, "--plot", self.folder / "a.svg"]),
            ("gguf", tokens.main, ["--model", path]),
            ("transformers", agreement.main, ["--model", folder]),
            ("tokenizers", tokens.main, []),
            ("safetensors", tokens.main, []),
            ("huggingface_hub", tokens.main, ["--model", "a/b"]),
        ):
            with self.subTest(package), mock.patch.dict(sys.modules, {package: None}):
                self.assertBad(main, argv, f"the package {package} is not installed here", "make ready")

    def test_ours(self):
        @command
        def main(argv):
            import examples.no_such_room  # noqa: F401

        with self.assertRaises(ModuleNotFoundError):
            call(main)


class Variables(FolderCase):
    def test_a_variable_of_the_hub_that_is_no_number(self):
        done = start(ROOT / "examples/ch03/tokens.py", "--model", "a/b", cwd=self.folder, HF_HUB_DOWNLOAD_TIMEOUT="soon")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn("HF_HUB_DOWNLOAD_TIMEOUT", done.stderr)

    def test_which_variable_keeps_it_from_the_network(self):
        from huggingface_hub.errors import OfflineModeIsEnabled

        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            cleared = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")}
            failing = mock.patch.object(hub, "_download", side_effect=OfflineModeIsEnabled("off"))
            said = self.assertRaisesRegex(BadInput, f"a/b is not in the cache and {name} is set")
            with mock.patch.dict(os.environ, cleared | {name: "1"}, clear=True), failing, said:
                hub.fetch("a/b")

    @slow
    def test_results_do_not_depend_on_the_rest(self):
        """Terminal, colours, locale and encoding change nothing that is printed for a machine."""
        script = [ROOT / "examples/ch03/tokens.py", "--text", "naïve 水", "--json"]
        plain = call(tokens.main, *script[1:])[1]
        for environment in (
            {"COLUMNS": "20", "NO_COLOR": "1", "LINES": "3"},
            {"FORCE_COLOR": "1", "PYTHON_COLORS": "1", "TERM": "dumb"},
            {"LC_ALL": "C"},
            {"LC_ALL": "tr_TR.UTF-8", "PYTHONUTF8": "1"},
            {"PYTHONHASHSEED": "7", "PYTHONDEVMODE": "0", "TOKENIZERS_PARALLELISM": "true", "TZ": "Asia/Tokyo"},
        ):
            env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
            done = subprocess.run([sys.executable, *map(str, script)], cwd=self.folder, env=env, capture_output=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, b""), environment)
            self.assertEqual(done.stdout.decode(), plain, environment)


if __name__ == "__main__":
    unittest.main()
