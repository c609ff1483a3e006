"""Chapter 11: faster paths. Each is a `Model` with other weights or another program, so the cache and the loop run it as any other.

Shapes: of a matrix N rows, one for each number that comes out, and K columns; T positions, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from examples.ch02.config import GPT2Config
from examples.ch02.families import program
from examples.ch02.model import Model
from examples.ch10.kv_cache import KVCache, stream_cached
from examples.ch11 import compiled_blocks, fused_attention
from examples.lab.script import BadInput

WIDENED = 2**20  # numbers of an int8 matrix that are float32 at once: 4 MiB, which a processor's caches hold

WHOLE = 32  # what sizes of a matrix torch's own int8 product takes multiples of; it does not check them


class CachedStep:
    """A model and its cache as what a loop calls: `step` feeds ids and gives logits, `truncate` takes positions back.

    length: positions that are held. Whatever else has these three can stand in its place, a compiled decode step say.
    """

    def __init__(self, model: Model, capacity: int | None = None, last_only: bool = False):
        """capacity: as a KVCache's. last_only: logits of the last of the fed positions alone."""
        self.model, self.cache, self.last_only = model, KVCache(model, 1, capacity), last_only

    @property
    def length(self) -> int:
        """Positions that are held."""
        return self.cache.length

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` positions; raises BadInput as `KVCache.truncate`."""
        self.cache.truncate(length)

    @torch.inference_mode()
    def step(self, ids: Tensor) -> Tensor:
        """Logits [T, V] of the new `ids` [T], which are held from now on; [1, V] with `last_only`. Raises as `forward_cached`."""
        x = stream_cached(ids[None], self.model, self.cache)  # [1, T, d]
        x = x[:, -1:] if self.last_only else x
        return program(self.model).unembed(x, self.model.weights, self.model.config)[0]


# -------------------------------------------------------------------------------------------------------------- int8 weights


class Int8Matrix:
    """A matrix [N, K] of whole numbers, -127 to 127, and a scale for each row; it stands in a model's weights as a tensor does.

    It knows what a pass does with a matrix: `x @ w`, `x @ w.T` and, of the token table, `w[ids]`. So GPT-2's matrices, stored
    [in, out], are held the other way round, and `turned` says so. product: multiplies, as `widened` does.
    """

    def __init__(self, numbers: Tensor, scales: Tensor, product: Callable, turned: bool = False):
        self.numbers, self.scales, self.product, self.turned = numbers, scales, product, turned
        self.dtype, self.device = scales.dtype, scales.device  # of the computation, as a tensor's are

    @property
    def T(self):
        """The same matrix the other way round."""
        return Int8Matrix(self.numbers, self.scales, self.product, not self.turned)

    def __getitem__(self, ids):
        """The rows [..., K] of `ids` [...], as float32."""
        return self.numbers[ids] * self.scales[ids].unsqueeze(-1)

    def __rmatmul__(self, x):
        """x [..., K] times the matrix, [..., N]."""
        if not self.turned:
            raise BadInput("int8 weights have a scale for each number that comes out; this product sums over those")
        return self.product(x.reshape(-1, x.shape[-1]), self.numbers, self.scales).view(*x.shape[:-1], -1)


def rounded(w: Tensor) -> tuple[Tensor, Tensor]:
    """(numbers int8 [N, K], scales [N]) of w [N, K]: of each row the largest absolute value becomes 127, and 0 stays 0."""
    scales = w.abs().amax(-1).clamp(min=torch.finfo(w.dtype).tiny) / 127  # [N]
    return torch.round(w / scales[:, None]).to(torch.int8), scales


def widened(x: Tensor, numbers: Tensor, scales: Tensor) -> Tensor:
    """x [T, K] @ the matrix [N, K] transposed, in float32: some rows at a time are widened to float32 where caches can hold them.

    The scales are for whole rows, so they multiply what comes out, T N numbers, and not the N K that go in.
    """
    rows = max(1, WIDENED // numbers.shape[1])
    parts = [x @ part.to(x.dtype).T for part in numbers.split(rows)]  # each [T, rows]
    return torch.cat(parts, dim=-1).mul_(scales)


def in_bfloat16(x: Tensor, numbers: Tensor, scales: Tensor) -> Tensor:
    """The same by torch's own product of int8 weights, which takes x in bfloat16 and gives bfloat16."""
    return torch._weight_int8pack_mm(x.bfloat16(), numbers, scales.bfloat16()).to(x.dtype)


def with_int8(model: Model, product: Callable = widened) -> Model:
    """The model with every matrix that a pass multiplies by as an Int8Matrix; position table, gains and biases stay as they are."""
    own = isinstance(model.config, GPT2Config)  # whose matrices are [in, out], all but the tables
    tables, weights = ("wte.weight", "lm_head.weight"), {}
    for name, w in model.weights.items():
        if w.ndim != 2 or name in ("wpe.weight", "model.embed_positions.weight"):
            weights[name] = w
        else:
            turned = own and name not in tables
            weights[name] = Int8Matrix(*rounded(w.T.contiguous() if turned else w), product, turned)
    return replace(model, weights=weights)


# ----------------------------------------------------------------------------------------------------------------- the paths


@dataclass(frozen=True)
class Path:
    """A way to compute what the plain pass computes.

    make: a function without arguments that gives its `Model`; raises BadInput where it cannot run here, and says why. exact:
    whether it computes the same function, so that it may differ by rounding in float32 alone. number, weight: bytes of a number
    of the computation and of a stored weight. bfloat16: whether matmuls are in that. spares: the kinds of bytes of `operations`
    that it does not move. last_only: logits of the last position alone.
    """

    name: str
    make: Callable
    exact: bool = True
    number: int = 4
    weight: float = 4
    bfloat16: bool = False
    spares: tuple = field(default=())
    last_only: bool = False


def paths(model: Model) -> list[Path]:
    """The paths of a float32 model, the plain one first."""

    def by(module):
        module.check(model.config)
        return replace(model, module=module.__name__)

    def own_int8():
        if not hasattr(torch, "_weight_int8pack_mm"):
            raise BadInput("this torch has no product of int8 weights")
        packed = with_int8(model, in_bfloat16)
        sizes = {n for w in packed.weights.values() if isinstance(w, Int8Matrix) for n in w.numbers.shape}
        odd = sorted(n for n in sizes if n % WHOLE)
        if odd:  # it would read and write past the end of the matrix
            raise BadInput(
                f"torch's product takes sizes that are multiples of {WHOLE}, and a matrix has {odd[0]}; give another model"
            )
        return packed

    return [
        Path("plain pass", lambda: model),
        Path("fused attention", lambda: by(fused_attention), spares=("score_bytes",)),
        Path("last row only", lambda: model, last_only=True),
        Path("compiled blocks", lambda: by(compiled_blocks), spares=("vector_bytes",)),
        Path("bfloat16", lambda: model.to(torch.bfloat16), exact=False, number=2, weight=2, bfloat16=True),
        Path("int8, widened in blocks", lambda: with_int8(model), exact=False, weight=1),
        Path("int8, torch's product", own_int8, exact=False, weight=1, bfloat16=True),
    ]
