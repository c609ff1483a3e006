"""Setting up destroys nothing: what `make` does to an environment that is new, old, broken off, a link or somebody's own, in
throwaway folders with packages made here; nothing is fetched."""

import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

from tests.support import ROOT, FolderCase, slow


def write_wheel(folder, version):
    """A package `tinylab` of one file."""
    folder.mkdir(exist_ok=True)
    info = f"tinylab-{version}.dist-info"
    with zipfile.ZipFile(folder / f"tinylab-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tinylab.py", f"version = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tinylab\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"tinylab.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


@unittest.skipUnless(shutil.which("make"), "make is not installed")
@slow
class SetUp(FolderCase):
    @classmethod
    def setUpClass(cls):
        """One folder as after a first `make`, with a package beside what requirements.txt names; every test works on a copy."""
        cls.first = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        lab, wheels = cls.first / "lab", cls.first / "wheels"
        for part in ("scripts", "examples", "tests"):
            (lab / part).mkdir(parents=True)
        shutil.copy(ROOT / "Makefile", lab)
        shutil.copy(ROOT / "scripts" / "set_up.py", lab / "scripts")
        (lab / "requirements.txt").write_text("tinylab==1.0\n")
        for version in ("1.0", "2.0"):
            write_wheel(wheels, version)
        cls.made = cls.make_in(lab, "ready", wheels)
        for packages in lab.glob(".venv/lib/*/site-packages"):
            (packages / "real_model.py").write_text("")

    @staticmethod
    def make_in(lab, target, wheels):
        """(exit status, what it said on stderr)"""
        argv = ["make", target, f"PYTHON={sys.executable}", f"PIP_ARGS=--no-index --find-links {wheels}"]
        done = subprocess.run(argv, cwd=lab, capture_output=True, text=True)
        return done.returncode, done.stderr

    def setUp(self):
        super().setUp()
        shutil.copytree(self.first, self.folder, symlinks=True, dirs_exist_ok=True)
        self.lab, self.wheels = self.folder / "lab", self.folder / "wheels"
        self.requirements, self.venv = self.lab / "requirements.txt", self.lab / ".venv"

    def make(self, target="ready"):
        return self.make_in(self.lab, target, self.wheels)

    def holds(self, venv=None):
        """The version of tinylab there, and that nothing beside it is gone."""
        command = [(venv or self.venv) / "bin" / "python", "-c", "import real_model, tinylab; print(tinylab.version)"]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    def test_first(self):
        self.assertEqual((self.made, self.holds()), ((0, ""), "1.0"))

    def test_a_new_time_changes_nothing_and_needs_no_network(self):
        shutil.rmtree(self.wheels)
        self.requirements.touch()
        self.assertEqual((self.make(), self.holds()), ((0, ""), "1.0"))

    def test_new_contents_are_installed_beside_what_is_there(self):
        self.requirements.write_text("tinylab==2.0\n")
        self.assertEqual((self.make(), self.holds()), ((0, ""), "2.0"))

    def test_a_second_file_of_requirements_has_a_mark_of_its_own(self):
        more = self.lab / "content" / "web" / "requirements.txt"
        more.parent.mkdir(parents=True)
        more.write_text("tinylab==2.0\n")
        argv = [
            sys.executable,
            "scripts/set_up.py",
            ".venv",
            "content/web/requirements.txt",
            "--no-index",
            "--find-links",
            self.wheels,
        ]
        for wheels_are_there in (True, False):  # the second time nothing is to be installed
            done = subprocess.run(argv, cwd=self.lab, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr, self.holds()), (0, "", "2.0"))
            self.assertTrue((self.venv / ".ready-content-web-requirements").is_file())
            if wheels_are_there:
                shutil.rmtree(self.wheels)
        self.assertEqual(self.make(), (0, ""))  # and the first file's mark is as it was

    def test_a_failed_install_leaves_the_old_environment(self):
        self.requirements.write_text("tinylab==3.0\n")
        for _ in range(2):  # it does not take the failed one for done
            status, err = self.make()
            self.assertEqual((status, self.holds()), (2, "1.0"))
            self.assertIn("error: pip could not install what requirements.txt names", err)
        shutil.rmtree(self.wheels)
        self.requirements.write_text("tinylab==1.0\n")
        self.assertEqual((self.make(), self.holds()), ((0, ""), "1.0"))

    def test_a_link_is_used_and_not_written_to(self):
        other = self.venv.rename(self.folder / "other")
        self.venv.symlink_to(other)
        for name in (".ready", ".made"):
            (other / name).unlink()
        before = sorted(other.rglob("*"))
        self.assertEqual((self.make(), self.holds(other)), ((0, ""), "1.0"))
        self.requirements.write_text("tinylab==2.0\n")
        status, err = self.make()
        self.assertEqual((status, self.holds(other)), (2, "1.0"))
        self.assertIn("error: .venv is a link", err)
        self.assertEqual(self.make("clean")[0], 0)
        self.assertTrue(self.venv.is_symlink())
        self.assertEqual(sorted(other.rglob("*")), before)

    def test_a_set_up_that_was_broken_off(self):
        for pip in self.venv.glob("lib/*/site-packages/pip*"):
            shutil.rmtree(pip)
        (self.venv / ".ready").unlink()
        self.assertEqual((self.make(), self.holds()), ((0, ""), "1.0"))

    def test_an_environment_that_does_not_run(self):
        for python in self.venv.glob("bin/python*"):
            python.unlink()
        status, err = self.make()
        self.assertEqual(status, 2)
        self.assertIn("does not run; remove .venv", err)

    def test_clean_removes_what_make_made(self):
        mine = self.lab / "mine" / "__pycache__"
        mine.mkdir(parents=True)
        (self.lab / ".ruff_cache").mkdir()
        (self.venv / ".made").rename(self.folder / ".made")
        self.assertEqual(self.make("clean")[0], 0)
        self.assertEqual(self.holds(), "1.0")  # somebody else's
        (self.folder / ".made").rename(self.venv / ".made")
        self.assertEqual(self.make("clean")[0], 0)
        self.assertEqual([self.venv.exists(), (self.lab / ".ruff_cache").exists(), mine.exists()], [False, False, True])


if __name__ == "__main__":
    unittest.main()
