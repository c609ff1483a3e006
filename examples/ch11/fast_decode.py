"""Chapter 11: decoding on the file's own four bits, compiled.

    model = load("smollm2"); generate(ids, model, 128, forward=fast_forward(model))     # chapter 5's loop, with this pass in it

`fast_step.py` says what a step computes. Here one layer and the head are compiled ahead of time for this processor, once for each
number of positions at a time, and kept as files; a step calls the layer L times, each time with other weights. Prompts go through
the plain pass, whose products are of matrices and not of vectors: it fills the same cache.
"""

import hashlib
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from examples.ch02.families import program
from examples.ch02.model import Model
from examples.ch04.gpt2_from_scratch import check_ids
from examples.ch10.kv_cache import Cached, KVCache, stream_cached
from examples.ch11 import fast_step
from examples.ch11.q4_weights import PackedLayer, PackedModel, pack
from examples.lab.environment import processor
from examples.lab.script import BadInput, as_whole, progress_bar

COMPILED = Path(__file__).resolve().parents[2] / ".cache" / "ch11"  # what was compiled here, each file for one shape
AT_ONCE = (1, 4, 8)  # positions that a step is compiled for; another number up to the last is filled up with positions of no use
OPTIONS = {  # of the compiler
    # a sum over a block is one long expression: it stays in a register, however long it is
    **dict.fromkeys(("realize_opcount_threshold", "realize_reads_threshold", "realize_acc_reads_threshold"), 10**6),
    "max_pointwise_cat_inputs": 0,  # what is put together with `cat` is made once, and not again wherever it is read
    "cpp.enable_floating_point_contract_flag": "fast",  # a product and a sum are one instruction
}


class CannotCompile(BadInput):
    """There is no compiler for C++ here, or it fails."""


# ---------------------------------------------------------------------------------------------------------------- compilation


class _Layer(torch.nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape

    def forward(self, *inputs):
        return fast_step.layer(*inputs, self.shape)


class _Head(torch.nn.Module):
    def __init__(self, *settings):
        super().__init__()
        self.settings = settings

    def forward(self, *inputs):
        return fast_step.head(*inputs, *self.settings)


def shape_of(packed: PackedModel, layer: PackedLayer) -> fast_step.Shape:
    """What a layer's step is compiled for."""
    of, parts = packed.config, layer.parts
    rows, kinds = (tuple((part, getattr(p, what)) for part, p in parts.items()) for what in ("rows", "kind"))
    return fast_step.Shape(of.n_head, of.kv_heads, of.head_width, of.norm_eps, rows, kinds)


def weights_of(layer: PackedLayer) -> dict:
    """A layer's weights as `fast_step.layer` takes them."""
    parts = {part: (p.words, p.scales) for part, p in layer.parts.items()}
    return {"parts": parts, "gains": layer.gains, "biases": layer.biases}


def compiled(module: torch.nn.Module, inputs: tuple, dynamic: tuple, about: str):
    """The module compiled for inputs of these shapes, as a function from the list of their tensors to the list of its results.

    dynamic: as torch.export takes it. about: what beside the inputs' shapes it is compiled for. The file of a compilation is named
    by a digest of all that it depends on, and is there whole or not at all. Raises CannotCompile.
    """
    leaves = pytree.tree_leaves(inputs)
    source = Path(fast_step.__file__).read_bytes()
    facts = [about, [(list(x.shape), str(x.dtype)) for x in leaves], torch.__version__, torch.get_num_threads(), processor()]
    facts += [torch.backends.cpu.get_cpu_capability(), sorted(OPTIONS.items())]
    target = COMPILED / f"{hashlib.sha256(repr(facts).encode() + source).hexdigest()[:24]}.pt2"
    if not target.is_file():
        _compile(module, inputs, dynamic, target)
    from torch._inductor import aoti_load_package

    return aoti_load_package(str(target)).loader.boxed_run


def _compile(module, inputs, dynamic, target):
    from torch._inductor import aoti_compile_and_package
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()  # which raises where there is none, before any work
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder, warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            exported = torch.export.export(module, inputs, dynamic_shapes=dynamic, strict=False)
            made = aoti_compile_and_package(exported, package_path=str(Path(folder) / target.name), inductor_configs=dict(OPTIONS))
            Path(made).replace(target)
    except Exception as error:  # whatever the compiler, or the search for one, raises
        reason = str(error).strip().splitlines()[0][:160] if str(error).strip() else repr(error)
        raise CannotCompile(f"the decode step cannot be compiled here ({type(error).__name__}: {reason})") from None


# ------------------------------------------------------------------------------------------------------------------ the cache


class TiledCache(KVCache):
    """Chapter 10's cache of one sequence with its positions in tiles of 16, as a compiled step reads them.

    keys, values: of each layer [n, g, dh, 16] and [n, 16, g, dh]. Behind the capacity is room for a step's positions of no use.
    """

    def __init__(self, model: Model, capacity: int | None = None):
        plain = KVCache(model, 1, 1)  # which checks the model
        most, of = model.config.n_positions, model.config
        self.model, self.batch, self.length, self.pending = model, 1, 0, {}
        self.capacity = most if capacity is None else capacity
        if not 1 <= (as_whole(self.capacity) or 0) <= most:
            raise BadInput(
                f"capacity {capacity!r} is not a whole number, 1 to n_positions {most}; give one that the model can fill"
            )
        n = max(2, -(-(self.capacity + AT_ONCE[-1]) // fast_step.POSITIONS))  # two tiles at least: see `FastDecode.step`
        with torch.inference_mode(False):
            shapes = (n, of.kv_heads, of.head_width, fast_step.POSITIONS), (n, fast_step.POSITIONS, of.kv_heads, of.head_width)
            self.keys, self.values = ([torch.zeros(shape) for _ in plain.keys] for shape in shapes)
            self.ids = torch.zeros(1, self.capacity, dtype=torch.int64)

    def room(self, layer: int) -> int:
        return self.capacity

    def live(self, layer: int, length: int | None = None) -> tuple[Tensor, Tensor]:
        """As chapter 10 has them, [1, g, length, dh] each, of the first `length` positions; the keys are copied."""
        n = self.length if length is None else length
        tiles = -(-n // fast_step.POSITIONS)
        keys = self.keys[layer][:tiles].permute(1, 0, 3, 2).flatten(1, 2)  # [g, 16 tiles, dh]
        values = self.values[layer][:tiles].flatten(0, 1).transpose(0, 1)  # [g, 16 tiles, dh]
        return keys[None, :, :n], values[None, :, :n]

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Chapter 10's: keep new k and v [1, g, T, dh] of the plain pass."""
        self.check_room(k.shape[2])
        at = torch.arange(self.length, self.length + k.shape[2])
        fast_step.keep(self.keys[layer], self.values[layer], k[0].transpose(0, 1), v[0].transpose(0, 1), at)
        return self.live(layer, self.length + k.shape[2])


# ------------------------------------------------------------------------------------------------------------------- the loop


class FastDecode:
    """A `forward` for chapter 5's loop, as chapter 10's `Cached` is one, whose steps read the file's own four bits.

    model: of a GGUF file, in float32. capacity: positions to hold. packed: its packed weights, where another has them already.
    compiles: False runs the functions of `fast_step.py` as they are written, which is slow and needs no compiler.
    Raises BadInput for a model that has no such weights, and CannotCompile where the step cannot be compiled.
    compile_s: seconds that compiling, or reading what was compiled before, has taken so far. given, computed: as `Cached`'s.
    """

    def __init__(self, model: Model, capacity: int | None = None, packed: PackedModel | None = None, compiles: bool = True):
        self.model, self.packed, self.compiles = model, pack(model) if packed is None else packed, compiles
        self.cache = TiledCache(model, capacity)
        self.given = self.computed = 0
        self.compile_s, self._steps, self._threads = 0.0, {}, None
        of, room = model.config, len(self.cache.keys[0][:, 0, 0].flatten())
        cos, sin = program(model).rotation(torch.arange(room), of.rope, of.head_width)  # [room, dh] each
        self.cos, self.sin = (a[:, : of.head_width // 2].contiguous() for a in (cos, sin))
        self._leaves = [pytree.tree_leaves(weights_of(layer)) for layer in self.packed.layers]
        self._tiles = 0  # that the views of the cache have
        self.prepare(1)

    @property
    def length(self) -> int:
        """Positions that the cache holds."""
        return self.cache.length

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` positions; raises BadInput for more than there are."""
        self.cache.truncate(length)

    def __call__(self, ids: Tensor) -> Tensor:
        """Logits [1, 1, V] of the last position of the whole text so far, ids [1, t]; what the cache holds is kept."""
        check_ids(ids, self.model.config)
        self.cache.check_batch(ids.shape[0])
        held = min(self.cache.shared_prefix(ids), ids.shape[1] - 1)
        self.cache.truncate(held)
        self.given += ids.shape[1]
        self.computed += ids.shape[1] - held
        new = ids[0, held:]
        logits = self.step(new) if len(new) == 1 else self.prefill(new)  # [1, V]
        return logits[None, -1:]

    def prefill(self, ids: Tensor) -> Tensor:
        """Logits [1, V] of the last of new ids [T], all of them through the plain pass, behind what the cache holds."""
        x = stream_cached(ids[None], self.model, self.cache)  # [1, T, d]
        return program(self.model).unembed(x[:, -1:], self.model.weights, self.model.config)[0]

    def step(self, ids: Tensor) -> Tensor:
        """Logits [T, V] of new ids [T], which follow what the cache holds; afterwards it holds them too.

        All weights are read once for up to AT_ONCE[-1] of them; more go through the plain pass. Raises BadInput like chapter 10's
        `forward_cached`.
        """
        T, past, cache = len(ids), self.length, self.cache
        check_ids(ids[None], self.model.config)
        cache.check_room(T)
        if max(AT_ONCE) < T:
            x = stream_cached(ids[None], self.model, cache)
            return program(self.model).unembed(x, self.model.weights, self.model.config)[0]
        size = next(n for n in AT_ONCE if n >= T)
        layers, head = self.prepare(size)
        x = self.packed.table[torch.nn.functional.pad(ids, (0, size - T))]  # [size, d]
        at = torch.arange(past, past + size)
        cos, sin = self.cos[past : past + size], self.sin[past : past + size]
        tiles = max(2, -(-(past + size) // fast_step.POSITIONS))  # a compiler takes a size of one for a constant
        if tiles != self._tiles:
            self._views = [(k[:tiles], v[:tiles]) for k, v in zip(cache.keys, cache.values, strict=True)]
            self._tiles = tiles
        for run, views, leaves in zip(layers, self._views, self._leaves, strict=True):
            (x,) = run([x, cos, sin, at, *views, *leaves])
        (logits,) = head([x, self.packed.gain, self.packed.head.words, self.packed.head.scales])
        cache.advance(ids[None])
        return logits[:T]

    def prepare(self, size: int):
        """(a function for each layer, one for the head) of a step of `size` positions, compiled for torch's number of threads."""
        if self._threads != torch.get_num_threads():
            self._steps, self._threads = {}, torch.get_num_threads()
        if size not in self._steps:
            start = time.perf_counter()
            self._steps[size] = self._compile(size) if self.compiles else self._as_written()
            self.compile_s += time.perf_counter() - start
        return self._steps[size]

    def _as_written(self):
        def runs(layer):
            weights, shape = weights_of(layer), shape_of(self.packed, layer)
            return lambda inputs: [fast_step.layer(*inputs[:6], weights, shape)]

        settings = (self.packed.head.kind, self.packed.head.rows, self.packed.config.norm_eps)
        return [runs(layer) for layer in self.packed.layers], lambda inputs: [fast_step.head(*inputs, *settings)]

    def _compile(self, size):
        packed, of = self.packed, self.packed.config
        x, at = torch.zeros(size, of.n_embd), torch.arange(size)
        tiles = torch.export.Dim("tiles", min=2)
        tiled = [(layer, shape_of(packed, layer)) for layer in packed.layers]
        shapes = dict.fromkeys(shape for _, shape in tiled)
        example = {shape: layer for layer, shape in reversed(tiled)}
        with torch.inference_mode(False), progress_bar("part compiled", len(shapes) + 1) as bar:
            functions = {}
            for shape in shapes:
                keys, values = (torch.cat([t[0][:2], t[0][:1]]) for t in (self.cache.keys, self.cache.values))  # three tiles, say
                weights = weights_of(example[shape])
                inputs = (x, self.cos[:size], self.sin[:size], at, keys, values, weights)
                dynamic = (*[None] * 4, {0: tiles}, {0: tiles}, pytree.tree_map(lambda _: None, weights))
                functions[shape] = compiled(_Layer(shape), inputs, (dynamic,), f"layer {shape}")
                bar.update()
            settings = (packed.head.kind, packed.head.rows, of.norm_eps)
            inputs = (x, packed.gain, packed.head.words, packed.head.scales)
            head = compiled(_Head(*settings), inputs, None, f"head {settings}")
            bar.update()
        return [functions[shape] for _, shape in tiled], head


def fast_forward(model: Model, capacity: int | None = None, say=None):
    """The fastest `forward` for chapter 5's loop with one sequence that agrees with the oracle: a `FastDecode`, or else `Cached`.

    say: called with one line where it is `Cached`, which says why; by default it goes to stderr.
    """
    try:
        return FastDecode(model, capacity)
    except BadInput as reason:
        line = f"note: {reason}; this is the plain cached pass"
        print(line, file=sys.stderr) if say is None else say(line)
        return Cached(model, capacity=capacity)
