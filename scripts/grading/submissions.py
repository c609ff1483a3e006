"""What students handed in: a folder or a zip each, read without trust. Nothing is unpacked, no link is followed, nothing is run.

A file is found by its name, `ex2_attention.py`, in a folder `ch04` where there is one of that name, else anywhere. Of a zip only
the wanted files are read, into memory, counting bytes as they come, whatever its headers say.
"""

import hashlib
import os
import stat
import unicodedata
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from examples.lab.script import BadInput

LARGEST = {".py": 1 << 20, ".json": 1 << 16, ".md": 1 << 18}  # bytes of a file handed in
ARCHIVE = 16 << 20  # bytes of a zip
ENTRIES, DEPTH = 5_000, 12  # files and folders of a submission, folders within folders
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
FIRST = "=+-@\t\r"  # what a spreadsheet takes for the start of a formula


@dataclass(frozen=True)
class HandedIn:
    """One file that was looked for. content: its bytes, None where there is none, and then `problem` says why if it is known."""

    content: bytes | None
    problem: str = ""
    note: str = ""

    @property
    def digest(self):
        return hashlib.sha256((self.content or b"") + b"|" + self.problem.encode()).hexdigest()


@dataclass(frozen=True)
class Submission:
    """A student's folder or zip. student: the name, fit for a table."""

    student: str
    path: Path


def submissions(folder):
    """Those in `folder`, by name; raises BadInput where there are none. What is neither folder nor zip is left out."""
    folder = Path(folder)
    if not folder.is_dir():
        raise BadInput(f"{folder} is no folder; give the one that holds a folder or a zip for each student")
    entries = sorted(folder.iterdir(), key=lambda path: os.fsencode(path.name))
    taken = [p for p in entries if not p.name.startswith(".") and not p.is_symlink()]
    taken = [p for p in taken if p.is_dir() or (p.is_file() and p.suffix.lower() == ".zip")]
    if not taken:
        raise BadInput(f"{folder} holds no folder and no zip; give the one that holds one for each student")
    found, names = [], set()
    for path in taken:
        name = shown(path.stem if path.is_file() else path.name)
        if name in names:
            name += f" ({hashlib.sha256(os.fsencode(path.name)).hexdigest()[:6]})"
        names.add(name)
        found.append(Submission(name, path))
    return found


def shown(text):
    """A name as a table can hold it: what cannot be printed replaced, and no spreadsheet takes it for a formula."""
    text = os.fsencode(text).decode("utf-8", errors="backslashreplace")
    text = "".join(c if c.isprintable() else "?" for c in unicodedata.normalize("NFC", text)).strip() or "?"
    return f"'{text}" if text[0] in FIRST else text


def handed_in(submission, wanted):
    """{(chapter, name): HandedIn} of the files `wanted`, pairs of chapter and file name."""
    wanted = list(wanted)
    try:
        files = _folder(submission.path) if submission.path.is_dir() else _archive(submission.path)
    except Exception as error:  # a hostile archive may make its reader raise anything
        why = str(error) if isinstance(error, BadInput) else f"the archive cannot be read ({type(error).__name__})"
        return {pair: HandedIn(None, why) for pair in wanted}
    return {pair: _pick(files, *pair) for pair in wanted}


def _pick(files, chapter, name):
    """The file of that name, with a folder's name of the chapter before others; `files`: {path: function that reads it}."""
    paths = [PurePosixPath(p) for p in files if PurePosixPath(p).name == name]
    of_others = [p for p in paths if any(len(x) == 4 and x[:2] == "ch" and x[2:].isdigit() and x != chapter for x in p.parts[:-1])]
    paths = sorted((p for p in paths if p not in of_others), key=lambda p: (chapter not in p.parts[:-1], len(p.parts), str(p)))
    if not paths:
        return HandedIn(None)
    note = f"{len(paths)} files have this name; {shown(str(paths[0]))} is the one that is graded" if len(paths) > 1 else ""
    most = LARGEST[PurePosixPath(name).suffix]
    try:
        content = files[str(paths[0])](most + 1)
    except BadInput as error:
        return HandedIn(None, str(error), note)
    except Exception as error:
        return HandedIn(None, f"the file cannot be read ({type(error).__name__})", note)
    if len(content) > most:
        return HandedIn(None, f"the file has more than {most:,} bytes", note)
    return HandedIn(content, "", note)


def _folder(path):
    """{relative path: function} of the files in a folder; links are refused when they are read."""
    found, count, queue = {}, 0, [(path, "")]
    for folder, above in queue:
        for entry in sorted(os.scandir(folder), key=lambda e: os.fsencode(e.name)):
            count += 1
            if count > ENTRIES:
                raise BadInput(f"the folder holds more than {ENTRIES:,} files")
            if entry.is_dir(follow_symlinks=False):
                if above.count("/") < DEPTH:
                    queue.append((entry.path, f"{above}{entry.name}/"))
            else:
                found[above + entry.name] = lambda most, path=entry.path: _read(path, most)
    return found


def _read(path, most):
    """The first `most` bytes of a file that is one; raises BadInput for links and devices."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if os.path.islink(path):
            raise BadInput("the file is a link, and is not followed") from None
        raise BadInput(f"the file cannot be opened ({error.strerror})") from None
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise BadInput("this is no file")
        return file.read(most)


def _archive(path):
    """{path: function} of the files in a zip whose names lead nowhere else."""
    if path.stat().st_size > ARCHIVE:
        raise BadInput(f"the archive has more than {ARCHIVE:,} bytes")
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
    if len(infos) > ENTRIES:
        raise BadInput(f"the archive holds more than {ENTRIES:,} files")
    found = {}
    for info in infos:
        name = info.filename
        if info.is_dir() or name.startswith("__MACOSX/"):
            continue
        safe = PurePosixPath(name).name  # under which a file with a bad name is found, and told of
        bad = name.startswith("/") or "\\" in name or ":" in name.split("/")[0] or ".." in name.split("/")
        problem = "its name leads out of the archive" if bad else ""
        problem = "it is a link" if stat.S_ISLNK(info.external_attr >> 16) else problem
        problem = "it is packed in a way that is not taken" if info.compress_type not in METHODS else problem
        problem = "it is encrypted" if info.flag_bits & 1 else problem
        key = f"{safe}" if bad else name
        if problem and key in found:
            continue
        found[key] = lambda most, info=info, problem=problem: _member(path, info, problem, most)
    return found


def _member(path, info, problem, most):
    if problem:
        raise BadInput(f"the file in the archive is refused: {problem}")
    with zipfile.ZipFile(path) as archive, archive.open(info) as file:
        return file.read(most)
