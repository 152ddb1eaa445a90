"""Attention: each query takes a mean of values, weighted by products of query and keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, prod

import numpy as np

from libdesc import eigen, invoker, rewrite
from libdesc.numpy import definition
from libdesc.numpy.arrays import FLOATS, Array, wide
from libdesc.routine import Routine
from ops._attention_nodes import SPELLINGS
from ops._attention_standard import STANDARD
from ops._places import one_output
from ptensor import PTensor
from vtensor.language.dims import broadcast, is_one
from vtensor.language.symbolic.symbolic_arrays import spread
from vtensor.operators import Context, Cost, Match, operator, param
from vtensor.tensor import VTensor


def _scores(op: Attention, q: VTensor, k: VTensor) -> dict[str, int]:
    """Return the sizes, by dim, of the product of ``q`` and ``k``, which sums over ``op.over``.

    Its dims are those of both but ``op.over``.
    """
    left, right = ({d: s for d, s in t.dims.items() if d != op.over} for t in (q, k))
    sizes = broadcast(left, right)
    return {dim: sizes[dim] for dim in (*left, *right)}


def _sizes_agree(op: Attention, q: VTensor, k: VTensor, v: VTensor, *_: VTensor) -> bool:
    over = q.dims.get(op.over), k.dims.get(op.over)
    along = k.dims.get(op.along), v.dims.get(op.along)
    return over[0] == over[1] is not None and along[0] == along[1] is not None


def _dims_are_apart(op: Attention, q: VTensor, k: VTensor, v: VTensor, *_: VTensor) -> bool:
    return op.along not in q.dims and op.over not in v.dims and op.over != op.along


def _masks_fit(op: Attention, q: VTensor, k: VTensor, _: VTensor, *masks: VTensor) -> bool:
    sizes = _scores(op, q, k)
    return all(
        is_one(size) or size in (sizes.get(dim), 1)
        for mask in masks
        for dim, size in mask.dims.items()
    )


def _cost(op: Attention, q: VTensor, k: VTensor, v: VTensor, *more: VTensor) -> int:
    columns = prod(size for dim, size in v.dims.items() if dim not in k.dims)
    products = prod(_scores(op, q, k).values())
    return 2 * products * (q.size(op.over) + columns)


@operator(
    "Attention",
    dims={"q": "*", "k": "*", "v": "*", "masks": "*", "y": "*"},
    holds=[
        (_sizes_agree, "q and k must have {op.over}, k and v {op.along}, in one size"),
        (_dims_are_apart, "q must not have {op.along}, nor v {op.over}"),
        (
            _masks_fit,
            "masks must have dims of the products of q and k, in their sizes or of size 1",
        ),
    ],
    onnx=[*STANDARD, *SPELLINGS],
    traits=[Cost(_cost)],
)
class Attention:
    """Average the values for each query, weighted by the softmax of its products with keys.

    y[B, Q, V] = sum over K of softmax over K(scale * (sum over F of q[B, Q, F] * k[B, K, F]))
    * v[B, K, V], where F is ``over``, K is ``along``, and B are all other dims of k.

    Dims:
        q: B, Q, F    k: B, K, F    v: B, K, V    masks: some of B, Q, K    y: B, Q, V
        A dim that several have may have size 1 in some of them, and is repeated there.
    Args:
        over: the dim of the features of queries and keys.
        along: the dim of the keys.
        scale: the factor of each product of a query and a key.
        masked: the number that replaces a product where a mask of truth values is false. Masks of
            other types are added to the products.
        zero: True replaces results of the softmax that are NaN by 0.
    Raises:
        DimError: an operand lacks ``over`` or ``along``, a dim has two sizes, or a mask has a dim
            that the products lack.
    Cost:
        2 * B*Q*K*(F + V) floating-point operations.

    If all products of a query are minus infinity, its weights are NaN.

    >>> from vtensor.operators import Context
    >>> q = VTensor("f32", {"N": 1, "head": 12, "query": 5, "F": 64})
    >>> k, v = (VTensor("f32", {"N": 1, "head": 12, "key": 9, dim: 64}) for dim in "FV")
    >>> Attention("F", "key", 0.125).compute(Context(), q, k, v).summary()
    'f32 N=1 head=12 query=5 V=64'

    Source: ONNX operator Attention, opset 25; Vaswani et al., Attention Is All You Need, 2017.
    ONNX's RotaryEmbedding, opset 23, and ONNX Runtime's Attention, QAttention, MultiHeadAttention,
    DecoderMaskedMultiHeadAttention, GroupQueryAttention and RotaryEmbedding are read as this and
    operators before and after it.
    """

    over: str = param()
    along: str = param()
    scale: float = param(default=1.0)
    masked: float = param(default=-inf)
    zero: bool = param(default=False)

    def compute(self, ctx: Context, q: VTensor, k: VTensor, v: VTensor, *masks: VTensor) -> VTensor:
        left = {dim: size for dim, size in _scores(self, q, k).items() if dim != self.along}
        right = {dim: size for dim, size in v.dims.items() if dim != self.along}
        sizes = broadcast(left, right)
        dims = {dim: sizes[dim] for dim in (*left, *right)}
        return one_output(ctx, self, [q, k, v, *masks], dims)


def _matrices(op: Attention, *operands: VTensor) -> bool | str:
    q, k, v, *_ = operands
    rows = [dim for dim in q.dims if dim not in k.dims]
    columns = [dim for dim in v.dims if dim not in k.dims]
    fits = len(rows) == len(columns) == 1 and rows != columns and k.num_elements > 0
    return fits or "takes one dim of queries, one of values, and some keys"


_TYPES = {"": ["f32"], "masks": ["f32", "bool"]}


@invoker("Attention", library="eigen", dtypes=_TYPES, when=_matrices)
def eigen_attention(ctx: Context, op: Attention, *operands: VTensor) -> Routine:
    numbers = eigen.Numbers(op.scale, op.masked, op.zero)
    return eigen.Attention(*operands, over=op.over, along=op.along, numbers=numbers)


@definition("Attention", dtypes={"": FLOATS, "masks": [*FLOATS, "bool"]})
def attention(ctx: Context, op: Attention, *operands: PTensor) -> None:
    q, k, v, *masks, y = operands
    dims = _scores(op, q.tensor, k.tensor)
    number = {dim: at for at, dim in enumerate(dict.fromkeys((*dims, *q.dims, *v.dims)))}

    def row(names: Iterable[str]) -> list[int]:
        return [number[dim] for dim in names]

    scores = np.einsum(wide(q.data()), row(q.dims), wide(k.data()), row(k.dims), row(dims))
    scores = scores * op.scale
    for mask in masks:
        mask_dims = [dim for dim in dims if dim in mask.dims]
        spread = np.einsum(mask.data(), row(mask.dims), row(mask_dims))
        spread = spread.reshape([mask.dims.get(dim, 1) for dim in dims])
        hides = mask.dtype == "bool"
        scores = np.where(spread, scores, op.masked) if hides else scores + wide(spread)
    axis = list(dims).index(op.along)
    power = np.exp(scores - scores.max(axis, keepdims=True, initial=-inf))
    weights = power / power.sum(axis, keepdims=True)
    if op.zero:
        weights = np.where(np.isnan(weights), 0, weights)
    y.data()[...] = np.einsum(weights, row(dims), wide(v.data()), row(v.dims), row(y.dims))


def _parts(match: Match) -> dict[str, object] | None:
    """Return the parameters ``scale`` and ``zero`` of the Attention that replaces a match.

    None (the rule does not apply) if the softmax is not along the keys' dim alone. None, too, if
    the pattern replaces NaN after the softmax by another number than 0.
    """
    axis = match["axis"]
    if len(axis) != 1 or axis[0] != match["along"]:
        return None
    scale = 1.0
    for name in {"scale", "left", "right"} & match.numbers.keys():
        scale *= match.numbers[name]
    if match.numbers.get("nothing", 0) != 0:
        return None
    return {"scale": scale / match.numbers.get("divisor", 1.0), "zero": "nothing" in match.numbers}


rewrite(
    "attention",
    "softmax(scale q k^T + mask) v",
    """
    left = Mul(q, scalar(left)) | q
    right = Mul(k, scalar(right)) | k
    products = MatMul(left, right, over=over)
    scaled = Mul(products, scalar(scale)) | Div(products, scalar(divisor)) | products
    kept = Where(keep, scaled, scalar(masked)) | scaled
    hidden = Add(kept, mask) | kept
    weights = Softmax(hidden, axis=axis)
    MatMul(weights | Where(IsNaN(weights), scalar(nothing), weights), v, over=along)
    """,
    """
    Attention(
        q, k, v, keep, mask, over=over, along=along, scale=scale, masked=masked, zero=zero
    )
    """,
    given=_parts,
    example={
        "q": "B H Q F",
        "k": "B H K F",
        "v": "B H K V",
        "mask": "B K",
        "keep": "? Q K",
        "left": 0.5,
        "right": 2.0,
        "scale": 0.25,
        "divisor": 8.0,
        "masked": -1e4,
        "nothing": 0.0,
        "over": "F",
        "along": "K",
        "axis": ("K",),
    },
)


def _merged(
    array: Array, have: Mapping[str, int], apart: Sequence[tuple[str, int]], sizes: Sequence[int]
) -> Array | None:
    """Return a mask for a reshaped tensor as a mask for the tensor before the Reshape.

    The Reshape splits dims of the tensor into several.

    Args:
        array: the elements of the mask.
        have: the sizes of the mask by dim, in the order of its axes; the dims are in ``apart``.
        apart: all dims after the Reshape, with their sizes.
        sizes: the sizes of the tensor's dims before the Reshape.

    Returns:
        The mask with an axis for each dim before the Reshape, of size 1 where it does not change.
        None if a dim before the Reshape is not the product of dims after it, or if the mask's dims
        have another order than ``apart``.
    """
    if [*have] != [dim for dim, _ in apart if dim in have]:
        return None
    array = array.reshape([have.get(dim, 1) for dim, _ in apart])
    unmerged, merged, whole = [size for _, size in apart], list[int](), list[int]()
    for size in sizes:
        first, parts = len(whole), list[int]()
        while unmerged and prod(parts) < size:
            parts.append(unmerged.pop(0))
        if prod(parts) != size:
            return None
        mask_sizes = array.shape[first : first + len(parts)]
        merged.append(size if max(mask_sizes, default=1) > 1 else 1)
        whole += parts if merged[-1] > 1 else [1] * len(parts)
    return None if unmerged else spread(array, whole, merged)


def _split(match: Match) -> dict[str, object] | None:
    """Return the values that the rule ``attention_split`` puts into its replacement, by name.

    ``scale`` and ``zero`` are those of ``_parts``. ``own`` is the mask ``split``, in dims of the
    products of queries and keys. ``key`` is the dim of the keys. ``back`` and ``forth`` are the new
    names of dims of v and of the output. None (the rule does not apply) if ``_parts`` returns None,
    the sizes do not fit, or v shares other dims with q or k.
    """
    known, new = _parts(match), [dim for dim, _ in match["together"]]
    sizes = _scores(Attention(match["over"], ""), match["q"], match["k"])
    if known is None or [*sizes.values()] != [size for _, size in match["together"]]:
        return None
    old = dict(zip(new, sizes, strict=True))
    split, v = match["split"], match["v"]
    array = np.reshape(match.numbers["split"], [*split.dims.values()])
    mask = _merged(array, split.dims, match["apart"], [*sizes.values()])
    back = tuple((dim, old.get(dim, dim)) for dim in v.dims)
    value_dims = {dim for dim in v.dims if dim not in old}
    if mask is None or value_dims & {*sizes, *match["q"].dims}:
        return None
    long = [dim for dim, size in zip(sizes, mask.shape, strict=True) if size > 1]
    return {
        **known,
        "own": (mask.reshape([size for size in mask.shape if size > 1]), long),
        "key": old[match["along"]],
        "back": back,
        "forth": tuple((old.get(dim, dim), dim) for dim in match.output.dims),
    }


rewrite(
    "attention_split",
    "softmax(scale q k^T + mask + split) v, the last mask over dims that are taken apart for it",
    """
    left = Mul(q, scalar(left)) | q
    products = MatMul(left, k, over=over)
    scaled = Mul(products, scalar(scale)) | Div(products, scalar(divisor)) | products
    hidden = Add(scaled, mask) | scaled
    whole = Reshape(Add(Reshape(hidden, shape=apart), constant(split)), shape=together)
    MatMul(Softmax(whole, axis=axis), v, over=along)
    """,
    """
    Rename(
        Attention(
            q, k, Rename(v, names=back), mask, own, over=over, along=key, scale=scale, zero=zero
        ),
        names=forth
    )
    """,
    given=_split,
    example={
        "q": "B=6 H Q F",
        "k": "B=6 H K F",
        "v": "b=6 h=H k=K V",
        "mask": "H K",
        "split": "part=3 part_q=Q part_k=K",
        "left": 0.5,
        "scale": 0.25,
        "divisor": 8.0,
        "over": "F",
        "along": "k",
        "axis": ("k",),
        "apart": lambda s: (
            *(("half", 2), ("part", 3), ("part_h", s["H"])),
            *(("part_q", s["Q"]), ("part_k", s["K"])),
        ),
        "together": lambda s: (("b", 6), ("h", s["H"]), ("q", s["Q"]), ("k", s["K"])),
    },
)
