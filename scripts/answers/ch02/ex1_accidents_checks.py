"""Checks of ch02.1: digests, the manifest, and what has changed."""

import hashlib
import json

from scripts.grading.answers import Mutant

DRIVER = '''
def of_bytes(module, texts):
    """file_digest of texts in Latin-1."""
    return [module.file_digest(text.encode("latin-1")) for text in texts]


def of_files(module, folders):
    """The manifest of each folder {name: text}, its names in their order."""
    found = [module.manifest({name: text.encode("utf-8") for name, text in folder.items()}) for folder in folders]
    return [[one, list(one)] for one in found]


def of_values(module, values):
    """meaning_digest of each, and how many different ones there are."""
    found = [module.meaning_digest(value) for value in values]
    return [found, len(set(found))]
'''


def config(draw):
    return {
        "n_layer": draw.whole(2, 48),
        "layer_norm_epsilon": draw.choice((1e-5, 1e-6)),
        "about": {"who": draw.choice(("José", "模型", "Zoë")), "at": [draw.whole(0, 9), {"b": None, "a": True}]},
        "activation": "gelu new",
    }


def turned(value):
    """The same value with its keys in the opposite order."""
    return {k: turned(value[k]) for k in reversed(value)} if isinstance(value, dict) else value


def entry(draw, size=None, meaning=True):
    digest = lambda: hashlib.sha256(str(draw.whole(0, 10**9)).encode()).hexdigest()  # noqa: E731
    return {"bytes": size or draw.whole(10, 10**6), "sha256": digest(), "meaning": digest() if meaning else None}


def cases(draw):
    texts = ["", "a", "\xff\x00", *("".join(chr(i) for i in draw.ids(256, draw.whole(1, 80)).tolist()) for _ in range(6))]
    yield "digests of bytes", "of_bytes", {"texts": texts}
    one, other = config(draw), config(draw)
    yield "digests of a meaning", "of_values", {"values": [one, turned(one), other, turned(other), [1, 2], [2, 1], 0.1, "é", None]}
    first = {
        "config.json": json.dumps(one, indent=2),
        "b.json": json.dumps(turned(one), ensure_ascii=False),
        "README.md": f"{draw.whole(0, 10**6)} words: é",
        "a.json": '{"a": ',
        "jsonl": "{}",
    }
    yield "the manifest", "of_files", {"folders": [first, {}, {"weights.json.bin": "{}", "z.json": "null", "empty": ""}]}
    old = {name: entry(draw, meaning=name.endswith(".json")) for name in ("b.json", "weights", "gone", "same", "a.json", "c.json")}
    new = {name: dict(row) for name, row in old.items() if name != "gone"}
    new["weights"]["sha256"] = entry(draw)["sha256"]
    new["a.json"] = entry(draw, size=old["a.json"]["bytes"])
    new["b.json"] = {**entry(draw), "meaning": old["b.json"]["meaning"]}
    new |= {"a new one": entry(draw), "c.json": entry(draw)}
    yield "what has changed", "changes", {"old": old, "new": new}
    yield "what has changed", "changes", {"old": new, "new": old}
    yield "what has changed", "changes", {"old": old, "new": old}
    for lost in ("a.json", "c.json"):
        broken = {**new, lost: entry(draw, meaning=False)}
        yield "a file that is no JSON any more", "changes", {"old": old, "new": broken}
        yield "a file that is no JSON any more", "changes", {"old": broken, "new": old}


MUTANTS = [
    Mutant("the digest is another one than sha256", "hashlib.sha256", "hashlib.sha1"),
    Mutant("the digest is in capitals", ".hexdigest()", ".hexdigest().upper()"),
    Mutant("the digest is cut off", ".hexdigest()", ".hexdigest()[:16]"),
    Mutant("the keys are not sorted, so that their order changes the meaning", "sort_keys=True, ", ""),
    Mutant(
        "only the outermost keys are sorted",
        "json.dumps(value, sort_keys=True, ",
        "json.dumps(dict(sorted(value.items())) if isinstance(value, dict) else value, ",
    ),
    Mutant("there are blanks in the text that is hashed", ', separators=(",", ":")', ""),
    Mutant("other signs than ASCII are hashed as they are", "sort_keys=True,", "sort_keys=True, ensure_ascii=False,"),
    Mutant(
        "lists are sorted as well; their order means something",
        "json.dumps(value, ",
        "json.dumps(sorted(value) if isinstance(value, list) else value, ",
    ),
    Mutant("a .json file that is no JSON ends the program", "except ValueError:", "except KeyError:"),
    Mutant("every file that happens to be JSON has a meaning, whatever its name", 'if not name.endswith(".json"):', "if not data:"),
    Mutant(
        "the meaning is the digest of the file's text, which a blank changes",
        "meaning_digest(json.loads(data))",
        "meaning_digest(data.decode()) if json.loads(data) != 0 else None",
    ),
    Mutant("the size counts characters, not bytes", "len(data)", 'len(data.decode("utf-8"))'),
    Mutant("the files are in the order in which they were given", "in sorted(files.items())", "in files.items()"),
    Mutant(
        "only sizes are compared, and a change that keeps the size is missed",
        'old[name]["sha256"] != new[name]["sha256"]',
        'old[name]["bytes"] != new[name]["bytes"]',
    ),
    Mutant(
        "missing and added are the wrong way round",
        "if name not in new:",
        "if name not in old:",
        (("elif name not in old:", "elif name not in new:"),),
    ),
    Mutant("a file that was added is passed over", "sorted({*old, *new})", "sorted(old)"),
    Mutant("every change is called content", '"size" if old[name]["bytes"] != new[name]["bytes"] else "content"', '"content"'),
    Mutant("every change of a .json file is called one of its meaning", "if one and other and one != other:", "if one and other:"),
    Mutant("a change of the meaning is not named", "if one and other and one != other:", "if False:"),
    Mutant(
        "a file that has lost its meaning or has a new one counts as a changed meaning",
        "if one and other and one != other:",
        "if one != other:",
    ),
    Mutant("the changes are not in the order of the names", "sorted({*old, *new})", "[*old, *(n for n in new if n not in old)]"),
]

RUBRIC = """
1 point: a change that reaches the file alone, such as keys in another order or a blank, and what verify names.
1 point: a change that reaches the meaning: a field of the config, an id in the tokenizer.
1 point: a change that loads and runs unnoticed without a manifest, such as two tensors of one shape that were swapped.
"""
