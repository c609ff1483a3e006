"""The tokenizer that a GGUF file describes: its pieces, how they are joined, and what stands around a text.

Two kinds are read. `gpt2` is a byte-level BPE, with GPT-2's, SmolLM's or Llama 3's way of cutting a text into words first. `llama`
is SentencePiece: pieces with scores, a space written as `▁`, and a piece for each byte that has no other. Both come out as they do
from transformers, but for three things that it passes over: Llama 3's own tokenizer takes a word that is a piece as it stands,
before any merge; `add_space_prefix` may say that no space goes before a text; and a control token keeps its id, whatever letters
it is spelt with.
"""

from pathlib import Path

from examples.ch02.tokenizer import put_around
from examples.lab.script import BadInput

KEY = "tokenizer.ggml."
AGAIN = "fetch the file again, or use another"
CONTROL, USER_DEFINED = 3, 4  # of token_type: both are matched whole in a text, and only the first is special
NAMED = {"bos": "bos_token_id", "eos": "eos_token_id", "unk": "unknown_token_id", "pad": "padding_token_id"}
NO_ID = 2**32 - 1  # -1, as a file without signs writes it
# Llama 3's words: Hugging Face's tokenizer.json of meta-llama/Meta-Llama-3-8B has this expression.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS = {"gpt-2": "gpt2", "gpt2": "gpt2", "smollm": "smollm"} | dict.fromkeys(("llama3", "llama-v3", "llama-bpe"), "llama3")


class _Keys:
    """The keys `tokenizer.ggml.*` of a file, each checked as it is read."""

    def __init__(self, fields, path):
        self.fields, self.path = fields, path

    def bad(self, name, what):
        return BadInput(f"{self.path}: {KEY}{name} {what}; {AGAIN}")

    def get(self, name, default=None):
        return self.fields.get(KEY + name, default)

    def text(self, name, default=None):
        value = self.get(name, default)
        if value is not None and not isinstance(value, str):
            raise self.bad(name, f"is {repr(value)[:40]}, not a text")
        return value

    def flag(self, name, default):
        value = self.get(name, default)
        if type(value) is not bool:
            raise self.bad(name, f"is {repr(value)[:40]}, not true or false")
        return value

    def list_of(self, kinds, name, length=None):
        """The list under `name`, all of `kinds`, and of `length` where that is given; None where there is none."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, kinds) for item in value):
            raise self.bad(name, f"is not a list of {'texts' if kinds is str else 'numbers'}")
        if length is not None and len(value) != length:
            raise self.bad(name, f"has {len(value):,} entries, and {KEY}tokens has {length:,}")
        return value

    def id(self, name, count):
        """The id under `name`, below `count`; None where there is none."""
        value = self.get(name)
        if value is None or value in (-1, NO_ID):
            return None
        if type(value) is not int or not 0 <= value < count:
            raise self.bad(name, f"is {repr(value)[:40]}, and the ids of {KEY}tokens are 0 to {count - 1:,}")
        return value


def tokenizer_of(fields: dict, rows: int, path: Path):
    """The `tokenizers.Tokenizer` of a GGUF file's fields; None for a file that has none.

    rows: of the embedding table, which no id may exceed. Raises BadInput, which names the file and the key, for another kind of
    tokenizer, and for pieces, merges, scores or ids that do not fit each other.
    """
    keys = _Keys(fields, path)
    kind = keys.text("model")
    if kind is None and keys.get("tokens") is not None:
        raise BadInput(f"{path} lacks {KEY}model, and has {KEY}tokens; {AGAIN}")
    if kind in (None, "none", "no_vocab"):
        return None
    if kind not in ("gpt2", "llama"):
        raise keys.bad("model", f"is {kind!r}; known here are 'gpt2' (byte-level BPE) and 'llama' (SentencePiece)")
    pieces = keys.list_of(str, "tokens")
    if not pieces:
        raise BadInput(f"{path} lacks {KEY}tokens; {AGAIN}")
    if len(pieces) > rows:
        raise keys.bad("tokens", f"has {len(pieces):,} pieces, and the embedding table {rows:,} rows: they do not belong together")
    types = keys.list_of(int, "token_type", len(pieces)) or [1] * len(pieces)
    named = {name: keys.id(key, len(pieces)) for name, key in NAMED.items()}
    try:
        tokenizer, spelt = (_byte_level if kind == "gpt2" else _sentencepiece)(keys, pieces, types)
        whole = [kind if one == other else None for kind, one, other in zip(types, pieces, spelt, strict=True)]
        _add_whole(tokenizer, kind, spelt, whole, named)
        around = []
        # a SentencePiece file that says nothing begins a text with bos
        for name, key, default in (("bos", "add_bos_token", kind == "llama"), ("eos", "add_eos_token", False)):
            if keys.flag(key, default) and named[name] is None and keys.get(key):
                raise keys.bad(key, f"is true, and {KEY}{NAMED[name]} is not there")
            around.append(spelt[named[name]] if keys.flag(key, default) and named[name] is not None else None)
        put_around(tokenizer, *around)
    except BadInput:
        raise
    except Exception as error:  # the library raises plain Exception
        raise BadInput(f"{path}: the tokenizer of {KEY}tokens cannot be made ({error}); {AGAIN}") from None
    return tokenizer


def _vocabulary(keys, pieces):
    """{piece: id}; raises BadInput for a piece that stands there twice."""
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    if len(vocabulary) < len(pieces):
        twice = next(piece for i, piece in enumerate(pieces) if vocabulary[piece] != i)
        raise keys.bad("tokens", f"has {twice!r} twice, as {pieces.index(twice)} and {vocabulary[twice]}")
    return vocabulary


def _merges(keys):
    """[(left, right)] of the file; None where it has none."""
    pairs = [tuple(merge.split(" ")) for merge in keys.list_of(str, "merges") or ()]
    for pair in pairs:
        if len(pair) != 2 or not all(pair):
            raise keys.bad("merges", f"has {' '.join(pair)!r}, which is not two pieces with a space between")
    return None if keys.get("merges") is None else pairs


def _checked(keys, pairs, vocabulary):
    """The merges, of which each must join two pieces of the vocabulary to a third."""
    for left, right in pairs:
        absent = next((piece for piece in (left, right, left + right) if piece not in vocabulary), None)
        if absent is not None:
            raise keys.bad("merges", f"has {left + ' ' + right!r}, and {absent!r} is not in {KEY}tokens")
    return pairs


def _byte_level(keys, pieces, types):
    """(tokenizer, pieces as they are spelt in it) of a byte-level BPE."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    name = keys.text("pre", "gpt-2")
    if name not in WORDS:
        raise keys.bad("pre", f"is {name!r}; known here are {', '.join(map(repr, WORDS))}")
    pairs = _merges(keys)
    if pairs is None:
        raise BadInput(f"{keys.path} lacks {KEY}merges; {AGAIN}")
    pieces = _spelt_in_bytes(pieces, types, {left + right for left, right in pairs})
    vocabulary, kind = _vocabulary(keys, pieces), WORDS[name]
    pairs = _checked(keys, pairs, vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=kind == "llama3"))
    first = {
        "gpt2": [],
        "smollm": [pre_tokenizers.Digits(individual_digits=True)],
        "llama3": [pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated")],
    }[kind]
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind != "llama3")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*first, level])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, pieces


def _spelt_in_bytes(pieces, types, made):
    """The pieces in the letters that stand for bytes. Some files hold a few as they are read: a space, say, where Ġ stands for it.

    A token that is matched whole stays as it is, unless it is one of those that a merge has `made`.
    """
    from tokenizers import pre_tokenizers

    letters, level = set(pre_tokenizers.ByteLevel.alphabet()), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelt = []
    for piece, kind in zip(pieces, types, strict=True):
        if not letters.issuperset(piece):
            other = "".join(part for part, _ in level.pre_tokenize_str(piece))
            piece = other if kind not in (CONTROL, USER_DEFINED) or other in made else piece
        spelt.append(piece)
    return spelt


def _sentencepiece(keys, pieces, types):
    """(tokenizer, pieces) of SentencePiece's BPE, whose merges are what joins two pieces to a third, the best score first."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    name = keys.text("pre", "default")
    if name != "default":
        raise keys.bad("pre", f"is {name!r}, which a SentencePiece tokenizer does not have")
    vocabulary, pairs = _vocabulary(keys, pieces), _merges(keys)
    if pairs is None:
        scores = keys.list_of((int, float), "scores", len(pieces))
        if scores is None:
            raise BadInput(f"{keys.path} lacks {KEY}scores, and {KEY}merges as well; {AGAIN}")
        if not all(score == score for score in scores):
            raise keys.bad("scores", "holds a NaN")
        pairs = _merges_by_score(pieces, scores, vocabulary)
    pairs = _checked(keys, pairs, vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, fuse_unk=True, byte_fallback=True))
    prefix = keys.flag("add_space_prefix", True)
    scheme = "first" if prefix else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=False)
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(parts + ([decoders.Strip(content=" ", left=1)] if prefix else []))
    return tokenizer, pieces


def _merges_by_score(pieces, scores, vocabulary):
    """[(left, right)]: every way in which a piece is two others. Of equal score those with a longer left part come first, then
    those with a longer right part, then those whose parts have lower ids, as transformers orders them."""
    found = []
    for piece, score in zip(pieces, scores, strict=True):
        ways = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        ways = [way for way in ways if way[0] in vocabulary and way[1] in vocabulary]
        ways.sort(key=lambda way: (vocabulary[way[0]], vocabulary[way[1]]))
        found += [(-score, -len(left), -len(right), left, right) for left, right in ways]
    found.sort(key=lambda way: way[:3])  # stable: what is alike stays in the order of the pieces
    return [(left, right) for *_, left, right in found]


def _add_whole(tokenizer, kind, pieces, types, named):
    """Let the tokenizer match whole, wherever they stand in a text: control tokens and those with a name, and user-defined ones."""
    from tokenizers import AddedToken

    usual = {"<|endoftext|>"} if kind == "gpt2" else {"<unk>", "<s>", "</s>"}
    special = {i for i, (piece, type) in enumerate(zip(pieces, types, strict=True)) if type == CONTROL or piece in usual}
    special |= {i for i in named.values() if i is not None}
    tokenizer.add_special_tokens([AddedToken(pieces[i], normalized=False, special=True) for i in sorted(special)])
    plain = [i for i, type in enumerate(types) if type == USER_DEFINED and i not in special]
    tokenizer.add_tokens([AddedToken(pieces[i], normalized=False, special=False) for i in plain])
