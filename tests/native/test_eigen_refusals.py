"""What is wrong is refused when a kernel is made, before it sees any memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from libdesc.eigen import native
from vtensor.runtime import _replay

if TYPE_CHECKING:
    from libdesc.eigen._eigen import Box, Sizes, Window

Make = Callable[[], object]

HUGE = 1 << 62
kernels = native.load()


def box(
    source: int = 0,
    shape: Sizes = (2, 3),
    start: int = 0,
    from_strides: Sizes = (3, 1),
    to: int = 0,
    to_strides: Sizes = (3, 1),
) -> Box:
    return (source, shape, start, from_strides, to, to_strides, 0)


def copy(*boxes: Box, sizes: Sizes = (6, 6), item_bytes: int = 4) -> Make:
    return lambda: kernels.copy(sizes, boxes, item_bytes)


def point(
    shape: Sizes = (2, 3),
    strides: Sizes = (3, 1),
    operands: int = 1,
    program: tuple[str, list[int]] | None = ("exp f32", [0]),
    pads: tuple[Box, ...] = (),
    constants: int = 0,
    types: tuple[str, ...] = (),
    pieces: Sizes | None = None,
) -> Make:
    code = [] if program is None else [program]
    known, rows = types or ("f32",) * (operands + 1), [strides] * operands
    given = (shape, rows, known, [("f32", 0.0)] * constants, code, pads)
    if pieces is None:
        return lambda: kernels.pointwise(*given)
    return lambda: kernels.joined(*given, pieces)


def attention(
    batch: Sizes = (2,),
    queries: int = 3,
    keys: int = 4,
    features: int = 5,
    operands: int = 4,
    step: int = 8,
    mask: Sizes = (0, 0, 1),
) -> object:
    rows = (queries, keys, keys, queries)[:operands]
    strides = [[64, *(step * place for place in range(min(count, 9)))] for count in rows]
    sizes = queries, keys, features, 6
    return kernels.attention(batch, sizes, strides, [(mask, False)], 1.0, 0.0, False)


def slide(**changes: Any) -> Window:
    parts: dict[str, Any] = {
        "images": 1,
        "channels": 4,
        "src": (1, 5, 5),
        "dst": (1, 3, 3),
        "kernel": (1, 3, 3),
        "strides": (1, 1, 1),
        "dilations": (1, 1, 1),
        "begin": (0, 0, 0),
    }
    assert changes.keys() <= parts.keys()
    images, channels, *rest = (parts | changes).values()
    src, dst, kernel, strides, dilations, begin = rest
    return (images, channels, src, dst, kernel, strides, dilations, begin)


def conv(groups: int = 1, outputs: int = 2, element: str = "f32", **changes: Any) -> Make:
    return lambda: kernels.convolution(element, slide(**changes), groups, outputs)


def pool(kind: str = "max", end: Sizes = (0, 0, 0), power: float = 0, **changes: Any) -> Make:
    return lambda: kernels.pooling(kind, slide(**changes), end, power)


def product(
    batch: Sizes = (2,),
    left: Sizes = (12,),
    right: Sizes = (0,),
    rows: int = 3,
    columns: int = 5,
    depth: int = 4,
    element: str = "f32",
) -> Make:
    return lambda: kernels.product(element, batch, left, right, rows, columns, depth)


def along(shape: Sizes, steps: Sizes) -> Box:
    """A box of src, whose first element becomes dst's."""
    return (0, shape, 0, steps, 0, [0] * len(shape), 0)


def reduce(
    kind: str,
    element: str = "f32",
    src: int = 12,
    dst: int = 3,
    kept: Sequence[Box] = ((0, (3,), 0, (4,), 0, (1,), 0),),
    reduced: Sequence[Box] = ((0, (4,), 0, (1,), 0, (0,), 0),),
) -> Make:
    """A reduction of three rows of four elements."""
    return lambda: kernels.reduction(kind, element, src, dst, kept, reduced, [])


def normalize(
    kind: str,
    element: str = "f32",
    first: int = 1,
    last: int = 2,
    parameters: Sequence[Sizes] = ((0, 1),),
    epsilon: float = 0.1,
    src: Sequence[Sizes] = ((4, 1),),
    dst: Sequence[Sizes] = ((4, 1),),
) -> Make:
    """A normalization of three rows of four elements."""
    rest = (3, 4), first, last, [*src, *dst, *parameters], epsilon
    return lambda: kernels.normalization(kind, element, "f32", *rest)


def pick(*runs: tuple[int, int, int], size: int = 6, item_bytes: int = 4) -> Make:
    return lambda: kernels.pick([runs], size, 0, item_bytes)


def places(**changes: Any) -> Any:
    parts: dict[str, Any] = {
        "shape": (2, 3),
        "strides": (3, 1),
        "bases": (20, 0),
        "axes": [(5, 4, "A")],
        "inner": 4,
        "indices": 6,
        "elements": 40,
    }
    assert changes.keys() <= parts.keys()
    return tuple((parts | changes).values())


def gather(index_bytes: int = 8, item_bytes: int = 4, **changes: Any) -> Make:
    return lambda: kernels.gather(places(**changes), index_bytes, item_bytes)


def scatter(dtype: str = "f32", reduction: str = "add", **changes: Any) -> Make:
    return lambda: kernels.scatter(places(**changes), 8, dtype, reduction)


def blend(*axes: Any, dtype: str = "f32") -> Make:
    return lambda: kernels.blend(dtype, axes)


def sample(
    mode: str = "linear", padding: str = "zeros", dtype: str = "f32", **changes: Any
) -> Make:
    parts = {"images": 1, "channels": 2, "src": (1, 3, 3), "dst": (1, 2, 2), "rank": 2} | changes
    image: Any = tuple(parts.values())
    return lambda: kernels.grid_sample(dtype, "f32", image, mode, padding, False)


def align(index_bytes: int = 8, **changes: Any) -> Make:
    names = "boxes images channels height width rows columns largest samples most scale half"
    parts = dict(zip(names.split(), (2, 1, 3, 5, 5, 2, 2, False, 0, 9, 1.0, True), strict=True))
    row: Any = tuple((parts | changes).values())
    return lambda: kernels.roi_align("f32", "f32", row, index_bytes)


def deform(
    groups: int = 2, parts: int = 2, outputs: int = 6, rank: int = 2, **changes: Any
) -> Make:
    return lambda: kernels.deformed(slide(**changes), (groups, parts, outputs, rank, True))


def fourier(dtype: str = "f32", **changes: Any) -> Make:
    sizes = (
        "series size src_parts frames step taken length bins dst_parts inverse mirrored windowed"
    )
    values = (2, 9, 2, 2, 3, 6, 6, 4, 2, False, False, False)
    row: Any = tuple((dict(zip(sizes.split(), values, strict=True)) | changes).values())
    return lambda: kernels.fourier(dtype, row)


def network(
    cell: str = "gru",
    direction: str = "reverse",
    names: Sequence[str] = ("sigmoid", "tanh"),
    given: Sequence[str] = ("bias", "lengths"),
    times: int = 3,
    units: int = 4,
    length_bytes: int = 8,
) -> Make:
    functions = [(name, 0.0, 0.0) for name in names]
    row: Any = (cell, direction, times, 2, 5, units, functions, 1.0, True, False)
    return lambda: kernels.recurrent(row, given, length_bytes)


def overwrite(
    outer: int = 4, size: int = 5, count: int = 2, starts: int = 2, circular: bool = False
) -> Make:
    return lambda: kernels.overwrite((outer, (size, 3, "T"), count, 3, starts, circular), 4)


def unpool(counted: Sizes = (1, 4, 4), dst: Sizes = (1, 4, 5), layers: int = 2) -> Make:
    return lambda: kernels.unpool(layers, 4, counted, dst, 4)


REFUSED: dict[str, tuple[Make, str]] = {
    "a box beyond dst": (copy(box(to=1)), "beyond dst"),
    "a box beyond its source": (copy(box(start=1)), "beyond its source"),
    "strides beyond dst": (copy(box(to_strides=(4, 1))), "beyond dst"),
    "strides beyond the source": (copy(box(from_strides=(1, 4))), "beyond its source"),
    "an offset below 0": (copy(box(to=-1)), "offset is negative"),
    "an offset in the source below 0": (copy(box(start=-1)), "offset is negative"),
    "a stride below 0": (copy(box(to=5, to_strides=(-3, -1))), "stride is negative"),
    "a box of negative size": (copy(box(shape=(-2, -3))), "size is negative"),
    "a box whose size overflows": (copy(box(shape=(HUGE, HUGE))), "overflow"),
    "a box whose offsets overflow": (copy(box(to_strides=(HUGE * 2 - 1, 1))), "overflow"),
    "a box whose sum overflows": (copy(box(to=HUGE * 2 - 1)), "overflow"),
    "fewer strides than sizes": (copy(box(to_strides=(1,))), "differ in rank"),
    "fewer strides of the source": (copy(box(from_strides=(1,))), "differ in rank"),
    "a source that is not there": (copy(box(source=1)), "no source"),
    "a source below none": (copy(box(source=-2)), "no source"),
    "no buffers": (copy(sizes=()), "no dst"),
    "a buffer of negative size": (copy(sizes=(6, -6)), "size is negative"),
    "a buffer whose bytes overflow": (copy(sizes=(HUGE, 6)), "overflow"),
    "elements of three bytes": (copy(item_bytes=3), "1, 2, 4 or 8 bytes"),
    "elements of no bytes": (copy(item_bytes=0), "1, 2, 4 or 8 bytes"),
    "elements of 2^32 + 4 bytes": (copy(item_bytes=(1 << 32) + 4), "1, 2, 4 or 8 bytes"),
    "no program": (point(program=None), "without instructions"),
    "no such function": (point(program=("tan", [0])), "no function tan"),
    "a value after itself": (point(program=("add f32", [0, 1])), "not yet"),
    "a value below 0": (point(program=("add f32", [-1, 0])), "not yet"),
    "too few values": (point(program=("add f32", [0])), "another number of values"),
    "too many values": (point(program=("exp f32", [0, 0])), "another number of values"),
    "no such type": (point(types=("f32", "f64")), "no element type f64"),
    "too few types": (point(types=("f32",)), "an element type an operand"),
    "an integer to a function of floats": (point(types=("s32", "f32")), "another kind"),
    "a float where integers go": (point(types=("f32", "s32")), "another kind than dst"),
    "too many operands": (point(operands=33), "too many values"),
    "too many constants": (point(constants=32), "too many values"),
    "an operand of another rank": (point(strides=(1,)), "differ in rank"),
    "an operand backwards": (point(strides=(-3, 1)), "stride is negative"),
    "an operand whose reach overflows": (point(strides=(HUGE * 2 - 1, 1)), "overflow"),
    "an operand whose bytes overflow": (point(strides=(HUGE, 1)), "overflow"),
    "an empty operand whose reach overflows": (
        point(shape=(0, 5), strides=(0, HUGE)),
        "overflow",
    ),
    "elements that overflow": (point(shape=(HUGE, HUGE)), "overflow"),
    "elements below 0": (point(shape=(-1, 3)), "size is negative"),
    "a pad that is copied": (point(pads=(box(),)), "filled, not copied"),
    "a pad beyond dst": (point(pads=(box(source=-1, to=1),)), "beyond dst"),
    "a piece of nothing": (point(pieces=(3, 0)), "a piece has no elements"),
    "a piece below 0": (point(pieces=(4, -1)), "a piece has no elements"),
    "pieces that overflow": (point(pieces=(HUGE * 2 - 1,) * 2), "overflow"),
    "pieces of other rows": (point(pieces=(3, 1)), "no whole rows"),
    "pieces that lie otherwise": (point(strides=(1, 2), pieces=(1, 2)), "otherwise than dst"),
    "no pieces": (point(pieces=()), "nothing is joined"),
    "pieces of no operand": (point(operands=0, constants=1, pieces=(3,)), "nothing is joined"),
    "steps below 0": (lambda: kernels.dynamic_quantize(-1, []), "size is negative"),
    "a pad of steps that is copied": (
        lambda: kernels.dynamic_quantize(1, [box()]),
        "filled, not copied",
    ),
    "a pad beyond the steps": (
        lambda: kernels.dynamic_quantize(1, [box(source=-1, to=1)]),
        "beyond dst",
    ),
    "a product of another type": (product(element="s8"), "f32 or s32"),
    "a batch of another rank": (product(left=(12, 1)), "differ in rank"),
    "a batch backwards": (product(left=(-12,)), "stride is negative"),
    "a matrix of negative size": (product(rows=-3), "size is negative"),
    "a product that overflows": (product(rows=HUGE, columns=HUGE), "overflow"),
    "factors that overflow": (product(rows=HUGE, depth=8), "overflow"),
    "an empty batch that overflows": (product(rows=0, right=(HUGE,), batch=(3,)), "overflow"),
    "two spatial dims": (conv(src=(5, 5)), "three spatial dims"),
    "pads of two dims": (pool(end=(0, 0)), "three spatial dims"),
    "a negative image": (conv(src=(1, -5, 5)), "size is negative"),
    "negative channels": (conv(channels=-4), "size is negative"),
    "images that overflow": (conv(images=HUGE), "overflow"),
    "a kernel of nothing": (conv(kernel=(1, 0, 3)), "no extent"),
    "a stride of 0": (conv(strides=(1, 0, 1)), "no extent"),
    "a dilation of 0": (conv(dilations=(1, 0, 1)), "no extent"),
    "a pad below 0": (conv(begin=(0, -1, 0)), "negative pad"),
    "an end pad below 0": (pool(end=(0, -1, 0)), "negative pad"),
    "a window that overflows": (conv(kernel=(1, 1, 3), dilations=(1, 1, HUGE)), "overflow"),
    "strides that overflow": (conv(strides=(1, 1, HUGE)), "overflow"),
    "a stride and a kernel that overflow": (
        conv(dst=(1, 1, 1), strides=(1, 1, HUGE), kernel=(1, 1, 1), dilations=(1, 1, HUGE)),
        "overflow",
    ),
    "pads that overflow": (pool(end=(0, 0, HUGE * 2 - 1)), "overflow"),
    "kernels that overflow": (conv(kernel=(HUGE, HUGE, 1)), "overflow"),
    "channels that the groups do not divide": (conv(groups=3), "fall into the groups"),
    "no groups": (conv(groups=0), "fall into the groups"),
    "outputs below 0": (conv(outputs=-1), "fall into the groups"),
    "outputs that overflow": (conv(outputs=HUGE), "overflow"),
    "a multiplier below 0": (lambda: kernels.depthwise("f32", slide(), -1), "size is negative"),
    "a multiplier that overflows": (lambda: kernels.depthwise("f32", slide(), HUGE), "overflow"),
    "no such pool": (pool("median"), "no such pooling"),
    "the norm of less than 1": (pool("lp", power=0.5), "less than 1"),
    "a convolution of bytes": (conv(element="u8"), "f32 or s32"),
    "channels of bytes": (lambda: kernels.depthwise("u8", slide(), 1), "f32 or s32"),
    "places in a window of no extent": (
        lambda: kernels.largest_place(slide(kernel=(0, 1, 1)), False),
        "no extent",
    ),
    "rows of fewer than none": (lambda: kernels.hardmax("f32", -1, 3), "size is negative"),
    "a reduction of bits": (reduce("xor"), "no such reduction"),
    "a root of integers": (reduce("l2", "s32"), "no l2 of s32"),
    "a sum of text": (reduce("sum", "text"), "no sum of text"),
    "a sum beyond src": (reduce("sum", src=11), "outside of src"),
    "a sum beyond dst": (reduce("sum", dst=2), "dst is written outside"),
    "a sum backwards": (reduce("sum", reduced=[along((4,), (-1,))]), "stride is negative"),
    "a sum that overflows": (reduce("sum", kept=[along((HUGE,), (HUGE,))]), "overflow"),
    "a normalization by luck": (normalize("luck"), "no such normalization"),
    "a normalization of integers": (normalize("rms", "s32"), "no normalization of s32"),
    "axes in no order": (normalize("rms", first=2, last=1), "no such axes"),
    "an axis that is not there": (normalize("rms", last=3), "no such axes"),
    "three parameters": (normalize("rms", parameters=[(0, 1)] * 3), "more than a scale"),
    "a scale of another rank": (normalize("rms", parameters=[(1,)]), "differ in rank"),
    "an epsilon below 0": (normalize("rms", epsilon=-1.0), "epsilon"),
    "a normalization of nothing": (normalize("rms", src=[], parameters=[]), "dst has no strides"),
    "a result with holes": (normalize("rms", dst=[(8, 1)]), "dst is not filled"),
    "a result in one place": (normalize("rms", dst=[(1, 1)]), "dst is not filled"),
    "columns in pieces": (normalize("l1", first=0, last=1, src=[(8, 1)]), "src or dst in pieces"),
    "rows that go backwards": (normalize("rms", src=[(4, -1)]), "stride is negative"),
    "rows of another rank": (normalize("rms", src=[(1,)]), "differ in rank"),
    "attention to no keys": (lambda: attention(keys=0), "no keys"),
    "attention of a negative size": (lambda: attention(queries=-1), "size is negative"),
    "attention that overflows": (lambda: attention(keys=HUGE, features=HUGE), "overflow"),
    "attention along another batch": (lambda: attention(batch=(2, 2)), "strides of an operand"),
    "attention of too many rows": (lambda: attention(queries=10), "strides of an operand"),
    "attention of too few operands": (lambda: attention(operands=3), "strides are of"),
    "attention that goes backwards": (lambda: attention(step=-1), "begins before"),
    "a mask of another batch": (lambda: attention(mask=[1]), "strides of a mask"),
    "a negative row": (lambda: kernels.softmax(2, -3), "size is negative"),
    "rows that overflow": (lambda: kernels.softmax(HUGE, 4), "overflow"),
    "a sum of no channels": (lambda: kernels.lrn(2, 3, 0, 1, 1, 1), "no channels"),
    "a run beyond src": (pick((7, 0, 1)), "beyond src"),
    "a run before src": (pick((3, 1, -1)), "before src"),
    "a run of negative size": (pick((-1, 0, 1)), "size is negative"),
    "a run that overflows": (pick((3, 0, HUGE)), "overflow"),
    "runs that overflow": (pick((HUGE, 0, 0), (HUGE, 0, 0)), "overflow"),
    "a src of negative size": (pick((1, -1, 0), size=-1), "size is negative"),
    "picked elements of three bytes": (pick((1, 0, 0), item_bytes=3), "1, 2, 4 or 8 bytes"),
    "places beyond the tensor": (gather(elements=39), "beyond the tensor"),
    "a row of places beyond the tensor": (gather(bases=(21, 0)), "beyond the tensor"),
    "an axis beyond the tensor": (gather(axes=[(6, 4, "A")]), "beyond the tensor"),
    "places beyond the indices": (gather(indices=5), "beyond the indices"),
    "rows of two beyond the indices": (gather(axes=[(1, 1, "A")] * 2), "beyond the indices"),
    "no axis that is addressed": (gather(axes=[]), "no axis is addressed"),
    "places backwards": (gather(bases=(-20, 0)), "stride is negative"),
    "an axis backwards": (gather(axes=[(5, -4, "A")]), "size is negative"),
    "an axis that overflows": (gather(axes=[(HUGE, 4, "A")]), "overflow"),
    "indices of two bytes": (gather(index_bytes=2), "indices of 4 or 8 bytes"),
    "gathered elements of three bytes": (gather(item_bytes=3), "1, 2, 4 or 8 bytes"),
    "updates of no type": (scatter("f8"), "no elements of type f8"),
    "no such reduction": (scatter(reduction="xor"), "no reduction xor"),
    "a depth below 0": (lambda: kernels.one_hot(2, -1, 1, 8, 4), "size is negative"),
    "sequences that overflow": (
        lambda: kernels.reverse_sequence(HUGE, 8, 1, 8, 4),
        "overflow",
    ),
    "matrices that overflow": (lambda: kernels.triangle(HUGE, 8, 1, 0, True, 4), "overflow"),
    "rows that overflow the diagonal": (
        lambda: kernels.triangle(0, HUGE * 2 - 1, 1, 0, True, 4),
        "overflow",
    ),
    "sums that overflow": (
        lambda: kernels.running("f32", HUGE, 8, 1, False, False, False),
        "overflow",
    ),
    "the extreme of nothing": (
        lambda: kernels.extreme_place("f32", 2, 0, 3, True, False),
        "extreme of nothing",
    ),
    "more than there are": (lambda: kernels.top("f32", 2, 3, 1, 4, True), "more elements"),
    "fewer than none": (lambda: kernels.top("f32", 2, 3, 1, -1, True), "more elements"),
    "a blend of nothing": (blend(), "no axis"),
    "a tap beyond src": (blend((1, 3, 1, [1], [3], [1.0])), "a tap beyond src"),
    "a tap before src": (blend((1, 3, 1, [1], [-1], [1.0])), "a tap beyond src"),
    "taps that are not there": (blend((1, 3, 1, [2], [0], [1.0])), "not there"),
    "taps that end before they begin": (
        blend((1, 3, 1, [1, 0], [0], [1.0])),
        "before they begin",
    ),
    "taps without weights": (blend((1, 3, 1, [1], [0], [])), "without weights"),
    "axes that do not fit": (blend(*[(1, 3, 1, [1], [0], [1.0])] * 2), "do not fit"),
    "a blend of integers": (blend((1, 3, 1, [1], [0], [1.0]), dtype="s32"), "f32, f16 or bf16"),
    "no such mode": (sample("quadratic"), "no such way"),
    "no such padding": (sample(padding="ones"), "no such way"),
    "a sample of nothing": (sample(src=(1, 0, 3)), "no elements"),
    "samples of four dims": (sample(rank=4), "one to three"),
    "a dim that is none": (sample(src=(2, 3, 3)), "a dim that is none"),
    "samples that overflow": (sample(images=HUGE), "overflow"),
    "samples of integers": (sample(dtype="s32"), "f32, f16 or bf16"),
    "windows of many channels": (
        lambda: kernels.col2im("f32", slide(channels=2)),
        "one channel",
    ),
    "windows that overflow": (
        lambda: kernels.col2im("f32", slide(channels=1, images=HUGE)),
        "overflow",
    ),
    "bent channels that the groups do not divide": (deform(groups=3), "fall into the groups"),
    "parts that do not divide the channels": (deform(parts=3), "fall into the groups"),
    "outputs that the groups do not divide": (deform(outputs=5), "fall into the groups"),
    "a bent image of four dims": (deform(rank=4), "one to three"),
    "a bent image with a dim that is none": (deform(src=(2, 5, 5)), "a dim that is none"),
    "a bent image of nothing": (deform(src=(1, 0, 5)), "no elements"),
    "bent images that overflow": (deform(images=HUGE), "overflow"),
    "a transform of nothing": (fourier(length=0), "nothing to transform"),
    "numbers of three parts": (fourier(src_parts=3), "one or two parts"),
    "more numbers than the length": (fourier(taken=7), "more elements than the length"),
    "more than half, mirrored": (fourier(taken=5, mirrored=True), "more elements than the length"),
    "more results than the length": (fourier(bins=7), "more elements than the length"),
    "a frame beyond src": (fourier(frames=3), "a frame beyond src"),
    "frames that overflow": (fourier(step=HUGE, frames=9), "overflow"),
    "series that overflow": (fourier(series=HUGE), "overflow"),
    "a transform of integers": (fourier("s32"), "f32, f16 or bf16"),
    "no such cell": (network("lru"), "no such cell"),
    "no such direction": (network(direction="up"), "no such direction"),
    "a function too few": (network(names=["tanh"]), "another number of functions"),
    "functions of one direction": (network(direction="bidirectional"), "number of functions"),
    "no function of a gate": (network(names=["tanh", "cot"]), "no function cot"),
    "a cell of a GRU": (network(given=["cell"]), "of the name cell"),
    "two biases": (network(given=["bias"] * 2), "given twice"),
    "lengths of two bytes": (network(length_bytes=2), "4 or 8 bytes"),
    "a negative time": (network(times=-1), "size is negative"),
    "units that overflow": (network(units=HUGE), "overflow"),
    "determinants of integers": (lambda: kernels.determinant("s32", 1, 2), "f32, f16 or bf16"),
    "determinants that overflow": (lambda: kernels.determinant("f32", 8, HUGE), "overflow"),
    "a negative number of matrices": (lambda: kernels.determinant("f32", -1, 2), "is negative"),
    "more than a cache holds": (overwrite(count=6), "more elements than the axis"),
    "rows between batches": (overwrite(starts=3), "fall into the batches"),
    "caches that overflow": (overwrite(outer=HUGE), "overflow"),
    "an image larger than what it is put into": (unpool(dst=(1, 4, 3)), "larger than dst"),
    "places of two dims": (unpool(counted=(4, 4)), "three spatial dims"),
    "layers that overflow": (unpool(layers=HUGE), "overflow"),
    "boxes of nothing": (align(height=0), "no elements"),
    "boxes without bins": (align(rows=0), "no bins"),
    "boxes that overflow": (align(boxes=HUGE), "overflow"),
    "a negative number of rows": (lambda: kernels.lrn(-2, 3, 5, 1, 1, 1), "size is negative"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "make",
    [
        *(copy(box()), point(), conv(), pool(), product(), pick((6, 0, 1)), gather(), scatter()),
        point(pieces=(1, 2)),
        *(blend((1, 3, 1, [1], [0], [1.0])), sample(), align(), deform(), fourier()),
        *(overwrite(), unpool(), network(), lambda: kernels.determinant("f32", 2, 3)),
        *(lambda: kernels.col2im("f32", slide(channels=1)),),
    ],
)
def test_the_same_without_a_fault_is_taken(make: Make) -> None:
    """The twin: each of the cases above differs from one of these in one thing."""
    assert make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: kernels.copy([6, 6], [(0, (6,), 0, (1,), 0, (1,), -1)], 4),
        lambda: kernels.copy([1 << 64], [], 4),
        lambda: kernels.softmax(2.5, 3),  # type: ignore[arg-type]
        lambda: kernels.pointwise((2,), [(1,)], ["f32"] * 2, [], [("exp f32", 0)], []),  # type: ignore[list-item]
        lambda: kernels.pooling("max", (1, 4), (0, 0, 0), 0),  # type: ignore[arg-type]
    ],
)
def test_wrong_types(make: Make) -> None:
    with pytest.raises(TypeError):
        make()


def test_buffers_that_do_not_fit_a_kernel_are_refused() -> None:
    kernel = kernels.convolution("f32", slide(), 1, 2)
    slots = _replay.describe(kernel)["slots"]
    assert [name for name, _, _ in slots] == ["src", "weights", "dst", "scratch"]
    room = [np.zeros(size + 64, np.uint8) for _, size, _ in slots]
    room[3] = room[3][-room[3].ctypes.data % 64 :]
    _replay.execute(kernel, room)
    with pytest.raises(ValueError, match="4 slots, 3 buffers"):
        _replay.execute(kernel, room[:3])
    with pytest.raises(ValueError, match=r"slot 3 \(scratch\) needs"):
        _replay.execute(kernel, [*room[:3], room[3][:64]])
    with pytest.raises(ValueError, match="multiple of 64"):
        _replay.execute(kernel, [*room[:3], room[3][4:]])
    with pytest.raises(TypeError):
        _replay.execute(kernel, [*room[:3], None])


def test_a_window_far_larger_than_the_image_sees_the_image_at_once() -> None:
    """Work grows with what lies in the image, not with what is asked for."""
    far = 1 << 40
    window = slide(src=(1, 1, 2), dst=(1, 1, 1), kernel=(1, 1, far), begin=(0, 0, far - 2))
    src, dst = np.arange(1, 9, dtype=np.float32), np.full(4, np.nan, np.float32)
    _replay.execute(kernels.pooling("max", window, (0, 0, 0), 0), [src, dst])
    assert dst.tolist() == [5, 6, 7, 8]
    _replay.execute(kernels.lrn(2, 4, far, 0.0, 1.0, 2.0), [src, (wide := np.zeros_like(src))])
    assert wide.tolist() == (src / 2).tolist()


@pytest.mark.parametrize("index", [-6, 5, np.iinfo(np.int64).min, np.iinfo(np.int64).max])
@pytest.mark.parametrize("make", [gather(), scatter()])
def test_an_index_outside_is_refused_in_a_run_and_named(make: Make, index: int) -> None:
    step: Any = make()
    slots = _replay.describe(step)["slots"]
    memory = [np.zeros(size, np.uint8) for _, size, _ in slots]
    memory[1].view(np.int64)[4] = index
    with pytest.raises(_replay.StepFailed, match=f"index {index} along A, which has 5") as caught:
        _replay.execute(step, memory)
    assert caught.value.bad_input
    memory[1].view(np.int64)[4] = -5
    _replay.execute(step, memory)


@pytest.mark.parametrize(
    ("start", "named"), [(4, 5), (-6, -6), (5, 5), (np.iinfo(np.int64).max, np.iinfo(np.int64).max)]
)
def test_a_row_beyond_a_cache_is_refused_in_a_run_and_named(start: int, named: int) -> None:
    """Two elements of five are overwritten from a start on; beyond the last comes the first."""
    step: Any = overwrite()()
    memory = [np.zeros(size, np.uint8) for _, size, _ in _replay.describe(step)["slots"]]
    memory[2].view(np.int64)[1] = start
    with pytest.raises(_replay.StepFailed, match=f"index {named} along T, which has 5") as caught:
        _replay.execute(step, memory)
    assert caught.value.bad_input
    _replay.execute(overwrite(circular=True)(), memory)


def test_a_place_outside_of_the_image_is_left_out() -> None:
    step: Any = unpool()()
    ones = np.ones(8, np.float32)
    places = np.array([0, 31, -1, 32, 1 << 62, -(1 << 63), 16, 15])
    dst = np.full(40, np.nan, np.float32)
    _replay.execute(step, [ones, places, dst])
    assert np.flatnonzero(dst).tolist() == [0, 18, 20, 38]
    assert np.isfinite(dst).all()
