"""The tokenizer in a model folder, and what a tokenizer puts around every text."""

from pathlib import Path

from examples.ch02.config import Config, GPT2Config
from examples.lab.script import BadInput, read_json

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt")
PAIR_OF = ("gpt2", "gpt_bigcode")  # the families whose vocab.json and merges.txt are a byte-level BPE's


def load_tokenizer(folder: Path, config: GPT2Config | Config):
    """The folder's tokenizer as `tokenizers.Tokenizer`, from tokenizer.json or vocab.json with merges.txt; None without either.

    A tokenizer.json says by itself what it puts around a text. For the other two, tokenizer_config.json may say it. Raises BadInput
    when the tokenizer has ids that the embedding table lacks.
    """
    from tokenizers import Tokenizer

    one, pair = folder / "tokenizer.json", (folder / "vocab.json", folder / "merges.txt")
    try:
        if one.is_file():
            tokenizer = Tokenizer.from_file(str(one))
        elif all(p.is_file() for p in pair):
            tokenizer = _from_pair(folder, pair, config)
        else:
            return None
    except (KeyboardInterrupt, SystemExit, BadInput):
        raise
    except BaseException as error:  # the library raises plain Exception, and panics derive from BaseException
        raise BadInput(f"the tokenizer in {folder} cannot be read ({error}); fetch it again") from None
    tokenizer.no_truncation()  # a file may carry both; here every text is encoded whole
    tokenizer.no_padding()
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if largest >= config.vocab_size:
        raise BadInput(
            f"the tokenizer in {folder} has id {largest}, and vocab_size is {config.vocab_size}; they do not belong together"
        )
    return tokenizer


def _from_pair(folder, pair, config):
    """GPT-2's tokenizer of vocab.json and merges.txt, with the special tokens that tokenizer_config.json names, or GPT-2's own."""
    from tokenizers import AddedToken, ByteLevelBPETokenizer, Tokenizer

    path = folder / "tokenizer_config.json"
    about = read_json(path) if path.is_file() else {}
    if config.model_type not in PAIR_OF and str(about.get("tokenizer_class")).removesuffix("Fast") != "GPT2Tokenizer":
        what = f"are read as GPT-2's tokenizer, and this is a {config.model_type}"
        raise BadInput(f"{folder}: vocab.json and merges.txt {what}; give its tokenizer.json")
    made = ByteLevelBPETokenizer(*map(str, pair), add_prefix_space=_flag(about, "add_prefix_space", path))
    tokenizer, named = Tokenizer.from_str(made.to_str()), {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        token = about.get(name, None if name == "pad_token" else "<|endoftext|>")
        token = token.get("content") if isinstance(token, dict) else token
        if token is not None and not isinstance(token, str):
            raise BadInput(f"{path}: {name} is {repr(token)[:40]}, not a text; correct it")
        named[name] = token if token is not None and tokenizer.token_to_id(token) is not None else None
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in sorted({*named.values()} - {None})])
    around = [named[f"{name}_token"] if _flag(about, f"add_{name}_token", path) else None for name in ("bos", "eos")]
    return put_around(tokenizer, *around)


def _flag(about, name, path):
    value = about.get(name)
    if value not in (None, True, False):
        raise BadInput(f"{path}: {name} is {repr(value)[:40]}, not true or false; correct it")
    return bool(value)


def put_around(tokenizer, before: str | None = None, after: str | None = None):
    """The tokenizer, which puts the tokens `before` and `after` around every text from now on; None is none."""
    from tokenizers.processors import TemplateProcessing

    named = [(token, tokenizer.token_to_id(token)) for token in dict.fromkeys((before, after)) if token is not None]
    if named:
        parts = [*([before] if before is not None else []), "$A", *([after] if after is not None else [])]
        tokenizer.post_processor = TemplateProcessing(single=parts, special_tokens=named)
    return tokenizer
