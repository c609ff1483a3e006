"""`make` calls this before every target: the environment in `.venv` holds what requirements.txt names, in those versions.

    python3 scripts/set_up.py .venv requirements.txt              # then pip's own options, such as --extra-index-url ADDRESS
    python3 scripts/set_up.py .venv content/web/requirements.txt  # beside the first, before the targets of the web edition

What it was installed for is told by the contents of requirements.txt, whose SHA-256 is kept in `.venv/.ready`, not by a time; that
of another file in `.venv/.ready-` and its name. It changes an environment by installing into it and never clears one. It writes to
none that is a link: that one is somebody else's.
Standard library alone: it runs before anything is installed.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path("requirements.txt")  # the book's own
MADE = ".made"  # in an environment that this made, and which `make clean` may therefore remove


def mark(venv: Path, requirements: Path) -> Path:
    """Where `venv` keeps what it was installed for."""
    return venv / (".ready" if requirements == REQUIREMENTS else ".ready-" + "-".join(requirements.with_suffix("").parts))


def set_up(venv: Path, requirements: Path, options: list[str]) -> str | None:
    """Bring `venv` up to date with `requirements`; what is wrong, in one line, or None."""
    python = venv / "bin" / "python"
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)]
    if venv.is_symlink():
        if runs(python, *install, "--no-index", "--no-deps", "--dry-run"):
            return None
        return (
            f"{venv} is a link to {os.readlink(venv)}, which lacks what {requirements} names; install it there with "
            f"`{python} -m pip install -r {requirements}`, or remove the link and make will make an environment"
        )
    ready, wanted = mark(venv, requirements), hashlib.sha256(requirements.read_bytes()).hexdigest()
    if runs(python, "-c", "") and ready.is_file() and ready.read_text(encoding="utf-8") == wanted:
        return None
    if not venv.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
        (venv / MADE).touch()
    if not runs(python, "-c", ""):
        return f"{python} does not run; remove {venv} (make clean) and try again"
    has_pip = runs(python, "-m", "pip", "--version")  # not where it is new, or was broken off before pip was there
    if not has_pip and not runs(python, "-m", "ensurepip", "--upgrade", "--default-pip"):
        return f"{python} cannot set up pip; on Debian and Ubuntu the package python3-venv lets it, then try again"
    if subprocess.run([python, *install, *options]).returncode:
        return f"pip could not install what {requirements} names; {venv} is as pip left it, and the next make tries again"
    partial = ready.with_name(ready.name + ".partial")
    partial.write_text(wanted, encoding="utf-8")
    partial.replace(ready)
    return None


def runs(*command) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


if __name__ == "__main__":
    problem = set_up(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
    if problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
