"""Checks of ch02.3: the names that a pickle fetches. The pickles are written step by step here, and never opened."""

import struct

from scripts.grading.answers import Mutant

DRIVER = '''
def names(module, pickles):
    """fetched of each pickle, given in hexadecimal digits; "no pickle" where it raises ValueError."""
    found = []
    for text in pickles:
        try:
            found.append(list(module.fetched(bytes.fromhex(text))))
        except ValueError:
            found.append("no pickle")
    return found


def verdicts(module, pickles):
    return [module.allowed(bytes.fromhex(text)) for text in pickles]
'''
GOOD = (
    "torch._utils _rebuild_tensor_v2",
    "collections OrderedDict",
    "torch FloatStorage",
    "torch HalfStorage",
    "torch LongStorage",
)
BAD = ("os system", "builtins exec", "__builtin__ eval", "subprocess Popen")
HARMLESS = (
    "collections Counter",
    "torch Size",
    "torch._utils _rebuild_sparse_tensor",
    "math sqrt",
    "torch FloatTensor",
    "os OrderedDict",
)


def text(value):
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def fetch(name, step="GLOBAL"):
    """The steps that fetch a name and drop it again."""
    module, _, attribute = name.partition(" ")
    if step == "INST":
        return b"(i" + f"{module}\n{attribute}\n".encode() + b"0"
    if step == "STACK_GLOBAL":
        return text(module) + text(attribute) + b"\x930"
    if step == "EXT":
        return b"\x82\x070"
    return b"c" + f"{module}\n{attribute}\n".encode() + b"0"


def pickled(*parts):
    return (b"\x80\x04" + b"".join(parts) + b"N.").hex()


def numbers(draw):
    """Steps that are no fetching: a dictionary of texts, some of which look like names or steps."""
    inner = b"".join(
        text(t) + b"G" + struct.pack(">d", draw.uniform()) for t in ("wte.weight", "cos\nsystem\n", "GLOBAL", "os system")
    )
    return b"}(" + inner + b"u0" + b"K" + bytes([draw.whole(0, 255)]) + b"0"


def cases(draw):
    good = [fetch(draw.choice(GOOD)) for _ in range(8)]
    several = [pickled(*(fetch(draw.choice((*GOOD, *BAD, *HARMLESS))) for _ in range(n))) for n in (1, 2, 3, 5)]
    yield "names by GLOBAL", "names", {"pickles": [*several, pickled(numbers(draw)), pickled()]}
    yield "names by INST", "names", {"pickles": [pickled(good[0], fetch(draw.choice(BAD), "INST"), good[1]) for _ in range(4)]}
    hidden = [pickled(good[0], fetch(draw.choice(GOOD), step), fetch(draw.choice(BAD))) for step in ("STACK_GLOBAL", "EXT") * 2]
    yield "names that are hidden", "names", {"pickles": hidden}
    twice = fetch(draw.choice(GOOD))
    again = [pickled(*[twice] * n, good[n], twice) for n in range(1, 5)] + [pickled(twice, twice, numbers(draw), good[3])]
    yield "a name that is fetched twice", "names", {"pickles": again}
    broken = [pickled(good[0], good[1])[:-2], pickled(fetch(draw.choice(BAD)))[:-6], b"no pickle at all".hex(), ""]
    yield "what is no pickle", "names", {"pickles": [*broken, *several]}
    fine = [pickled(*good[:n], numbers(draw)) for n in (0, 1, 3, 8)]
    wrong = [pickled(*good[:n], fetch(name), *good[n:4]) for n in (0, 2, 4) for name in BAD]
    yield "pickles of tensors, and others that run code", "verdicts", {"pickles": [*fine, *wrong]}
    for step in ("INST", "STACK_GLOBAL", "EXT"):
        which = [fetch(draw.choice(BAD), step) for _ in range(8)]
        yield (
            f"code behind {step if step != 'EXT' else 'a number'}",
            "verdicts",
            {"pickles": [pickled(good[i], w) for i, w in enumerate(which)]},
        )
    yield "names that are harmless", "verdicts", {"pickles": [pickled(good[0], fetch(name)) for name in HARMLESS + HARMLESS[:3]]}
    yield "an answer to what is no pickle", "verdicts", {"pickles": [*broken, *fine]}


MUTANTS = [
    Mutant("INST is passed over, which fetches by name as well", 'in ("GLOBAL", "INST")', 'in ("GLOBAL",)'),
    Mutant(
        "STACK_GLOBAL is passed over, and with it whatever name stands on the stack", 'HIDDEN = ("STACK_GLOBAL", ', "HIDDEN = ("
    ),
    Mutant(
        "EXT1, EXT2 and EXT4 are passed over, which fetch by a number",
        '("STACK_GLOBAL", "EXT1", "EXT2", "EXT4")',
        '("STACK_GLOBAL",)',
    ),
    Mutant(
        "each name is listed once; it is asked for as often as it is fetched",
        "    return found",
        "    return list(dict.fromkeys(found))",
    ),
    Mutant("the names are sorted, and not in the order of the steps", "    return found", "    return sorted(found)"),
    Mutant("only the first name is looked at", "for name in fetched(data))", "for name in fetched(data)[:1])"),
    Mutant("only the last name is looked at", "for name in fetched(data))", "for name in fetched(data)[-1:])"),
    Mutant("one allowed name is enough; all have to be", "return all(", "return not fetched(data) or any("),
    Mutant(
        "only the module is looked at: whatever else it has is let through",
        "name in ALLOWED for",
        'name.split(" ")[0] in {a.split(" ")[0] for a in ALLOWED} for',
    ),
    Mutant(
        "only the name is looked at, from whatever module it comes",
        "name in ALLOWED for",
        'name.split(" ")[-1] in {a.split(" ")[-1] for a in ALLOWED} for',
    ),
    Mutant(
        "a list of what is forbidden lets all else through",
        "name in ALLOWED for",
        'name.split(" ")[0] not in ("os", "builtins", "__builtin__", "subprocess", "?") for',
    ),
    Mutant(
        "names that begin like an allowed one are let through",
        "name in ALLOWED for",
        "any(a.startswith(name[:11]) for a in ALLOWED) for",
    ),
    Mutant("what is hidden counts as allowed", "name in ALLOWED for", 'name in (*ALLOWED, "?") for'),
    Mutant(
        "texts within the pickle are taken for names",
        '            found.append("?")',
        '            found.append("?")\n        elif code.name == "BINUNICODE" and " " in argument:\n'
        "            found.append(argument)",
    ),
    Mutant(
        "a pickle that calls is refused; torch's own call, too",
        "        return all(",
        '        if b"i" in data:\n            return False\n        return all(',
    ),
    Mutant("what is cut off is allowed as far as it goes, or at once", "        return False", "        return True"),
    Mutant("what is no pickle raises an error; it is to be refused", "except ValueError:", "except KeyError:"),
    Mutant(
        "module and name are joined by a dot, not by a blank", "found.append(argument)", 'found.append(argument.replace(" ", "."))'
    ),
]

RUBRIC = """
1 point: the three pickles with their answers, and none of them opened.
1 point: a harmless name that is refused, and why that is right: who lists what is forbidden has to think of everything.
1 point: STACK_GLOBAL hides the name, which steps before it may put together; so it is refused whole, and newer protocols with it.
"""
