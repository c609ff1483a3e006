"""Chapter 5: one token at a time. Run the model, choose a token, append it, and do it again.

    python examples/ch05/generate.py                                       # a passage by the embedded model
    python examples/ch05/generate.py --prompt "JULIET:" --tokens 60 --temperature 0
    python examples/ch05/generate.py --tokens 3 --show-candidates          # what each step had to choose from
    python examples/ch05/generate.py --tokens 40 --record requests.jsonl   # and chapter 1's record of where the time went
    python examples/ch05/generate.py --model smollm2 --fast                # chapter 11's way, with the same text
    python examples/ch05/generate.py > passage.txt                         # the text alone; the note about it goes to stderr

There is no mode for generation: the loop below calls a forward pass on a text that grows by one token per step. The pass is
chapter 4's, which computes everything anew each time, or any other that gives the logits of the last position.
"""

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor

from examples.ch01.record import Stopwatch, append, artefact, check_file, request_record
from examples.ch02.families import fast_path, program
from examples.ch02.model import Model, load_for, seeded
from examples.ch03.tokens import decode, encode, piece
from examples.ch04.gpt2_from_scratch import causal_mask, check_ids
from examples.ch05.sampling import (
    CANDIDATE_HEADINGS,
    add_sampling,
    candidate_cells,
    candidates,
    check_filters,
    check_temperature,
    choose,
    only,
)
from examples.lab.script import BadInput, Parser, answer, as_whole, command, progress_bar, read_json, table, whole_number

PROMPT = "HAMLET:\n"
TOKENS = 200
MOST = 10**7  # new tokens in one call
UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what bytes that are no character yet are decoded to


# --------------------------------------------------------------------------------------------------------------- the loop


@dataclass(frozen=True)
class Generation:
    """What `generate` made: ids [B, n] of new tokens, the first `lengths[r]` of sequence r its own and the rest padding, and the
    end token that stopped each sequence, or None where it had all its tokens."""

    ids: torch.Tensor
    lengths: list
    ended: list

    def sequence(self, r: int = 0) -> list[int]:
        """The new ids of one sequence, without padding, as a list."""
        return self.ids[r, : self.lengths[r]].tolist()


@torch.inference_mode()
def generate(
    ids: Tensor | list,
    model: Model,
    tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    end="model",
    forward: Callable | None = None,
    window: int | None = None,
    pad: int = 0,
    on_token: Callable | None = None,
) -> Generation:
    """Up to `tokens` new tokens behind each prompt: a `Generation`.

    ids: prompts [B, T], or a list of B of unequal length. Nothing is padded on the left: all are fed from position 0,
    the shortest prompt first, and a longer one takes its own next token where a shorter one takes the chosen one. So no row of
    attention is ever without a visible key, and each sequence is what it would be alone.
    temperature, top_k, top_p: as in `choose`; a temperature of 0 takes the most probable token, a filter that is None is off. seed:
    sequence r draws from seed + r. Ids that the model's tokenizer does not have are never chosen.
    end: the token or tokens that stop a sequence, which are returned as its last; "model" takes those of its files, None is none.
    forward: a function from the text so far, ids [B, t], to logits [B, ., V] whose last position is used; by default chapter 4's.
    window: let each step see only the last `window` tokens, at positions from 0: the text may then outgrow the model, and
    what has left the window is forgotten. on_token: called as on_token(sequence, id, logits [V]) for each token as it is chosen.
    Raises BadInput, before any work, for prompts that are no ids of the model, for settings that `choose` or `seeded` refuses, and
    where the last step would need a position that the model does not have. The last token is never fed, so a prompt of T leaves
    room for n_positions - T + 1.
    """
    config = model.config
    prompts = prompt_sequences(ids, config, window)
    lengths = [len(p) for p in prompts]
    tokens, window = _room(max(lengths), tokens, window, config)
    check_temperature(temperature)
    check_filters(top_k, top_p)
    ends = end_tokens(model) if end == "model" else end_list(end)
    allowed = known_ids(model)
    forward = whole_text(model) if forward is None else forward
    generators = [seeded(seed, r) for r in range(len(prompts))]

    shape, device = (len(prompts), max(lengths) + tokens), prompts[0].device
    text = torch.zeros(shape, dtype=torch.int64, device=device)  # [B, T + tokens], 0 behind a sequence's end
    for r, prompt in enumerate(prompts):
        text[r, : lengths[r]] = prompt
    emitted, ended = [0] * len(prompts), [None] * len(prompts)
    t = min(lengths)
    while any(n < tokens and e is None for n, e in zip(emitted, ended, strict=True)):
        logits = forward(text[:, max(0, t - window) if window else 0 : t])[:, -1]  # [B, V]
        if allowed is not None:
            logits = only(logits, allowed)
        for r in range(len(prompts)):
            if t < lengths[r] or emitted[r] == tokens or ended[r] is not None:
                continue  # still within its prompt, or done
            id = choose(logits[r], temperature, top_k, top_p, generators[r]).item()
            text[r, t] = id
            emitted[r] += 1
            ended[r] = id if id in ends else None
            if on_token is not None:
                on_token(r, id, logits[r])
        t += 1
    with torch.inference_mode(False):  # a tensor like any other, for the caller
        new = torch.full((len(prompts), max(emitted)), pad)
        for r, n in enumerate(emitted):
            new[r, :n] = text[r, lengths[r] : lengths[r] + n]
    return Generation(new, emitted, ended)


def whole_text(model: Model) -> Callable:
    """The forward that computes everything anew: ids [B, t] to logits [B, 1, V] of the last position, by the oracle."""

    def forward(ids):
        t, (weights, config) = ids.shape[1], (model.weights, model.config)
        at, mask = torch.arange(t, device=ids.device), causal_mask(t, t, ids.device)
        x = program(model).pass_over(ids, weights, config, at, mask)  # [B, t, d]
        return program(model).unembed(x[:, -1:], weights, config)

    return forward


def prompt_sequences(ids: Tensor | list, config, window: int | None = None) -> list[Tensor]:
    """The prompts as a list of B tensors [T]; raises BadInput for one that the model cannot take."""
    if isinstance(ids, torch.Tensor):
        check_ids(ids[:, : config.n_positions] if window and ids.ndim == 2 else ids, config)
    elif not isinstance(ids, (list, tuple)) or not len(ids):
        raise BadInput("prompts are neither a tensor [B, T] nor a list of sequences; give one of them")
    try:
        sequences = [
            s if isinstance(s, torch.Tensor) else torch.tensor(s if len(s) else (), dtype=None if len(s) else torch.int64)
            for s in ids
        ]
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"a prompt is no sequence of ids ({str(error).splitlines()[0]}); give lists of whole numbers") from None
    for sequence in sequences:
        if sequence.ndim != 1:
            raise BadInput(f"a prompt has shape {list(sequence.shape)}; give ids [T] for each sequence")
        check_ids(sequence.unsqueeze(1 if window else 0), config)  # as T sequences of one token where its length does not matter
    return sequences


def _room(longest, tokens, window, config):
    """(tokens, window) as Python's own ints, the window None where there is none; raises BadInput where they do not fit."""
    wanted, last = as_whole(tokens) or 0, config.n_positions
    if not 1 <= wanted <= MOST:
        raise BadInput(f"{tokens!r} new tokens; give a whole number, 1 to {MOST:,}")
    if window is not None:
        if not 1 <= (as_whole(window) or 0) <= last:
            raise BadInput(f"window {window!r} is not within 1 to n_positions {last}; give one that is")
    elif longest + wanted - 1 > last:
        raise BadInput(
            f"{longest} tokens of prompt and {wanted} new ones need {longest + wanted - 1} positions, and n_positions is {last}; "
            f"ask for at most {last - longest + 1} tokens, or give a window"
        )
    return wanted, as_whole(window)


def end_tokens(model: Model) -> set[int]:
    """The set of ids that end a text, from the model's generation_config.json or else its config.json, or from its GGUF file; empty
    without any."""
    if model.manifest.get("eos_token_id") is not None:
        return end_list(model.manifest["eos_token_id"], "the GGUF file's eos_token_id")
    for name in ("generation_config.json", "config.json"):
        path = model.path and model.path / name
        if path and path.is_file():
            found = read_json(path).get("eos_token_id")
            if found is not None:
                return end_list(found, f"{path}: eos_token_id")
    return set()


def end_list(end, where: str = "end") -> set[int]:
    """The set of ids in an int, a list of them or None; raises BadInput for anything else."""
    ends = [] if end is None else list(end) if isinstance(end, (list, tuple, set)) else [end]
    for id in ends:
        if as_whole(id) is None or id < 0:
            raise BadInput(f"{where} holds {id!r}; give token ids, whole numbers from 0")
    return {int(id) for id in ends}


def known_ids(model: Model) -> Tensor | None:
    """Booleans [V], True for the ids that the tokenizer has; None where that is all of them, or there is no tokenizer."""
    if model.tokenizer is None:
        return None
    known = torch.zeros(model.config.vocab_size, dtype=torch.bool)
    known[list(model.tokenizer.get_vocab(with_added_tokens=True).values())] = True
    return None if known.all() else known.to(model.device)


class Stream:
    """The text of new ids as they come, in whole characters: a piece may be a part of one, which waits for the rest.

    Bytes that are no character yet show as U+FFFD at the end of the text, one for all of them or one for each. Where the prompt
    ends with such bytes, and the new ids make them whole, the character is a part of what comes.
    """

    def __init__(self, model: Model, prompt=()):
        """prompt: the ids [T] before the first new one; some tokenizers decode a piece otherwise at the start of a text."""
        self.model, self.ids = model, list(prompt)
        self.prompt = decode(self.ids, model) if self.ids else ""
        self.shown = None  # until something is: as far as the prompt's own text goes

    def push(self, id: int) -> str:
        """The characters that are complete with this id; "" while one is not."""
        self.ids.append(id)
        text = decode(self.ids, self.model)
        return self._upto(text, len(text.rstrip(UNFINISHED)))

    def rest(self) -> str:
        """What still waits, as U+FFFD: call it once the last id has come."""
        text = decode(self.ids, self.model)
        return self._upto(text, len(text))

    def _upto(self, text, stop):
        start = self.shown
        if start is None:  # the prompt's U+FFFD at its end are its own, unless the text now has a character in their place
            whole = len(self.prompt.rstrip(UNFINISHED))
            rest = text[whole : len(self.prompt)]
            start = whole + len(rest) - len(rest.lstrip(UNFINISHED))
        piece = text[start:stop]
        self.shown = stop if piece else self.shown
        return piece


# -------------------------------------------------------------------------------------------------------------- the script


class _Show:
    """Prints tokens as they come, or keeps them for one JSON object. Text goes to stdout, a line about it to stderr."""

    def __init__(self, args, model, ids, progress):
        self.args, self.model, self.progress = args, model, progress
        self.settings = {name: getattr(args, name) for name in ("temperature", "top_k", "top_p")}
        self.prompt, self.new, self.steps = ids[0].tolist(), [], []
        self.stream = Stream(model, self.prompt) if model.tokenizer else None
        self.started = False

    def __call__(self, sequence, id, logits):
        self.new.append(id)
        self.progress()
        text = self.stream.push(id) if self.stream else f"{id} "
        if self.args.show_candidates:
            found = [{"piece": self.piece(c["id"]), **c} for c in candidates(logits, **self.settings)]
            self.steps.append({"id": id, "piece": self.piece(id), "candidates": found})
            if not self.args.json:
                rows = [[c["piece"], c["id"], *candidate_cells(c)] for c in found]
                print(f"step {len(self.new)}: {self.piece(id)}, id {id}; {self.after()}\n")
                print(table(["candidate", "id", *CANDIDATE_HEADINGS], rows) + "\n", flush=True)
        elif not self.args.json:
            self.start()
            print(text, end="", flush=True)

    def start(self):
        """The prompt, once, before the first token."""
        if not self.started:
            print(decode(self.prompt, self.model) if self.stream else f"{self.prompt[0]} ", end="")
            self.started = True

    def piece(self, id):
        """One id as a piece of text in quotation marks; the id itself without a tokenizer."""
        return repr(piece(id, self.model)) if self.model.tokenizer else str(id)

    def after(self):
        """What the probabilities of the candidates are."""
        if self.args.temperature == 0:
            return "probabilities at temperature 1, since 0 takes the best without any"
        return f"probabilities after temperature {self.args.temperature:g}, before top-k and top-p"

    def finish(self, seconds, ended=None, interrupted=False):
        """The end of the text, and on stderr a note about it, or the JSON object; after an interrupt, of what there is."""
        text = decode(self.prompt + self.new, self.model) if self.stream else None
        if self.args.json:
            value = {"prompt": self.prompt, "ids": self.new, "text": text, "ended": ended, "interrupted": interrupted}
            value |= {"seconds": seconds} | ({"steps": self.steps} if self.args.show_candidates else {})
            answer(self.args, {"generation": value}, None)
            return
        if self.args.show_candidates:
            print(text if text is not None else self.prompt + self.new)
        else:
            self.start()
            print(self.stream.rest() if self.stream else "")
        stopped = " up to an end token" if ended is not None else ""
        settings = ", ".join(f"{k.replace('_', '-')} {v}" for k, v in self.settings.items() if v is not None)
        fed = "whole text" if self.args.window is None else f"last {self.args.window} tokens"
        fed = "new token alone" if self.args.fast else fed
        sys.stdout.flush()  # before the note, where both go to one terminal
        print(f"\n[{len(self.new)} new tokens{stopped} in {seconds:.1f} s; {settings}, seed {self.args.seed};", file=sys.stderr)
        print(f"each step ran the {fed} through the model]", file=sys.stderr)


def by_stage(forward: Callable, show: Callable, watch: Stopwatch) -> tuple[Callable, Callable]:
    """(forward, on_token) for `generate` with one prompt, timed: the first pass is the stage prefill, each later one decode; sample
    is from the end of a pass until its token is told, and detokenise what `show` does with it."""

    def timed(ids):
        with watch.stage("decode" if "prefill" in watch.stages else "prefill"):
            logits = forward(ids)
        watch.begin("sample")
        return logits

    def on_token(sequence, id, logits):
        watch.end()
        with watch.stage("detokenise"):
            show(sequence, id, logits)

    return timed, on_token


def ran(model: Model) -> dict:
    """What a record says of the model: chapter 1's `artefact`."""
    about, path = model.manifest, model.path
    files = [path] if path and path.is_file() else [path / file["name"] for file in about["files"]]
    return artefact(about["source"], files, None if path else model.fields, about["commit"], about.get("seed"))


def options():
    """The script's argument parser."""
    parser = Parser(prog="generate.py", description=__doc__, keys=__file__)
    parser.add_argument("--prompt", default=None, help=f"the text to go on from, by default {PROMPT!r}")
    parser.add_argument("--tokens", type=whole_number(1), default=TOKENS, metavar="N", help="new tokens at most")
    add_sampling(parser, temperature=0.8, top_k=50)
    about = "see only the last W tokens, so that the text may outgrow the model"
    parser.add_argument("--window", type=whole_number(1), default=None, metavar="W", help=about)
    about = "print the best ten of each step, kept or cut, with their probabilities after temperature"
    parser.add_argument("--show-candidates", action="store_true", help=about)
    about = "append chapter 1's record of this request; examples/ch01/request.py show FILE shows it"
    parser.add_argument("--record", type=Path, default=None, metavar="FILE", help=about)
    about = "by chapter 11's fastest path that agrees with this one: four bits, compiled, or else a cache"
    parser.add_argument("--fast", action="store_true", help=about)
    return parser.add("model", "threads", "seed", "json")


@command
def main(argv=None):
    """Write on from a prompt, showing the text as it comes."""
    args = options().parse_args(argv)
    check_file(args.record)
    if args.fast and args.window is not None:
        raise BadInput("--fast keeps what a --window would compute anew at other positions; leave one of the two out")
    watch = Stopwatch()
    with watch.stage("load"):
        model = load_for(args)
    if model.tokenizer is None and args.prompt is None:
        ids = torch.tensor([[0]])  # random weights have no text: the ids are shown
    else:
        with watch.stage("tokenise"):
            ids = encode(PROMPT if args.prompt is None else args.prompt, model)  # [1, T]
    passes = whole_text(model)
    if args.fast:
        with watch.stage("load"):
            passes = fast_path(model, min(model.config.n_positions, ids.shape[1] + args.tokens))
    start = time.perf_counter()
    with progress_bar("token", args.tokens) if args.json else contextlib.nullcontext() as bar:
        show = _Show(args, model, ids, bar.update if args.json else lambda: None)
        settings = dict(show.settings, seed=args.seed, window=args.window)
        forward, on_token = by_stage(passes, show, watch)
        try:
            made = generate(ids, model, args.tokens, **settings, forward=forward, on_token=on_token)
        except KeyboardInterrupt:
            show.finish(time.perf_counter() - start, interrupted=True)
            raise
    with watch.stage("detokenise"):
        show.finish(time.perf_counter() - start, made.ended[0])
    whole = watch.seconds()
    if args.record is not None:
        about = {"artefact": ran(model), "threads": args.threads, "dtype": model.dtype, "settings": settings}
        append(args.record, request_record("generate.py", ids.shape[1], made.lengths[0], watch.stages, whole, **about))


if __name__ == "__main__":
    sys.exit(main())
