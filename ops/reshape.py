"""Reshapes, renamings and transposes; squares of pixels moved to channels and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import product
from math import prod

from libdesc import Routine, eigen, invoker, rewrite
from libdesc.numpy import declared, definition
from ops._elements import AHEAD
from ops._names import no_names, same_names
from ops._normalizations import positions
from ops._places import one_output, unique_names
from ops._windows import write_image
from ptensor import Layout, PTensor, share
from ptensor.evaluation import Call
from ptensor.recount import recounted
from vtensor.errors import LayoutError
from vtensor.language.operators import named
from vtensor.language.records import dataclass
from vtensor.language.spelling import Write
from vtensor.language.traits import Moves, Structural
from vtensor.operators import (
    Context,
    Match,
    Naming,
    NodeReader,
    NodeWriter,
    Opaque,
    Spelling,
    operator,
    param,
)
from vtensor.tensor import VTensor


def _reader(
    reshaped: Callable[[NodeReader, Sequence[int]], Sequence[int]],
) -> Callable[[NodeReader], VTensor]:
    """Return a function that reads an ONNX node, such as Squeeze, as a Reshape.

    ``reshaped`` takes the node and the sizes of its input, and returns the sizes of its output. It
    only calculates, so sizes may be symbolic. Its IndexError or ValueError says that the node is
    not supported.
    """

    def read(node: NodeReader) -> VTensor:
        x, names = node.input(0), node.output_names()
        try:
            sizes = reshaped(node, tuple(x.dims.values()))
        except (IndexError, ValueError) as error:
            raise node.refuse(str(error)) from None
        if len(names) != len(sizes):
            raise node.refuse(f"its output has {len(sizes)} dims, the model says {len(names)}")
        return node.reshape(x, dict(zip(names, sizes, strict=True)))

    return read


def _reshaped(node: NodeReader, sizes: Sequence[int]) -> Sequence[int]:
    shape = node.constant(1).tolist() if node.has(1) else node.attribute("shape")
    if not node.attribute("allowzero", 0):
        shape = [sizes[place] if size == 0 else size for place, size in enumerate(shape)]
    if any(size < -1 for size in shape):
        raise ValueError(f"shape {shape} has negative sizes")
    open_ones = [place for place, size in enumerate(shape) if size == -1]
    if not open_ones:
        return list(shape)
    known, whole = prod(size for size in shape if size != -1), prod(sizes)
    if len(open_ones) > 1 or not known or whole % known:
        raise ValueError(f"cannot reshape {whole} elements into shape {tuple(shape)}")
    return [whole // known if place in open_ones else size for place, size in enumerate(shape)]


def _flatten_names(node: Naming) -> None:
    axis = int(node.attribute("axis", 1))
    if axis in (1, 1 - node.rank("x0")):
        node.same("x0", 0, "y0", 0)
    node.hint("y0", "N C")


def _flattened(node: NodeReader, sizes: Sequence[int]) -> Sequence[int]:
    axis = int(node.attribute("axis", 1))
    if abs(axis) > len(sizes):
        raise IndexError(f"axis {axis} of {len(sizes)} dims")
    return prod(sizes[:axis]), prod(sizes[axis:])


def _axes(node: NodeReader, rank: int) -> set[int] | None:
    """Return the indices, from 0, of the axes in a node's attribute ``axes``, or in its input 1.

    None if the node has neither.

    Args:
        node: an ONNX node Squeeze or Unsqueeze.
        rank: the number of axes of the tensor; a negative index counts from the last one.

    Raises:
        ValueError: an axis does not exist, or occurs twice.
    """
    axes = node.constant(1).reshape(-1).tolist() if node.has(1) else node.attribute("axes")
    if axes is None:
        return None
    places = {axis % rank for axis in axes if -rank <= axis < rank}
    if len(places) < len(axes):
        raise ValueError(f"axes {axes} of {rank} dims: one does not exist, or occurs twice")
    return places


def _squeezed(node: NodeReader, sizes: Sequence[int]) -> Sequence[int]:
    axes = _axes(node, len(sizes))
    if axes is None:
        return [size for size in sizes if size != 1]
    if any(sizes[axis] != 1 for axis in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return [size for axis, size in enumerate(sizes) if axis not in axes]


def _unsqueezed(node: NodeReader, sizes: Sequence[int]) -> Sequence[int]:
    count = len(node.constant(1).reshape(-1)) if node.has(1) else len(node.attribute("axes") or ())
    rank, left = len(sizes) + count, iter(sizes)
    new = _axes(node, rank) or ()
    return [1 if axis in new else next(left) for axis in range(rank)]


def _write(node: NodeWriter, op: Reshape) -> None:
    [x], sizes = node.inputs, list(node.outputs[0].dims.values())
    node.emit("Reshape", node.operand(x), node.shape(x, sizes), allowzero=0 in sizes)


def _fills(op: Reshape, x: VTensor) -> bool:
    return prod(dict(op.shape).values()) == x.num_elements


@operator(
    "Reshape",
    dims={"x": "*", "y": "*"},
    holds=[unique_names("shape"), (_fills, "{x.num_elements} elements do not fill {op.shape}")],
    onnx=[
        Spelling("Reshape", 1, _reader(_reshaped), no_names, write=_write, ahead=AHEAD["Reshape"]),
        Spelling("Flatten", 1, _reader(_flattened), _flatten_names),
        Spelling("Squeeze", 1, _reader(_squeezed), no_names, ahead=AHEAD["Squeeze"]),
        Spelling("Unsqueeze", 1, _reader(_unsqueezed), no_names, ahead=AHEAD["Unsqueeze"]),
    ],
    traits=[Structural("reshape"), Moves(), Opaque()],
)
class Reshape:
    """Present the same elements, counted in declared order, under other dims.

    No memory moves if a layout of y describes x's memory; else x is transposed to declared order.

    Dims:
        x: any    y: the dims of ``shape``
    Args:
        shape: pairs of name and size, slowest first.
    Raises:
        DimError: a name occurs twice, or ``shape`` has another number of elements than x.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 2, "C": 3, "H": 4})
    >>> Reshape((("N", 2), ("F", 12))).compute(Context(), x).summary()
    'f32 N=2 F=12'

    Source: ONNX operators Reshape, Squeeze, Unsqueeze and Flatten, opset 13.
    """

    shape: tuple[tuple[str, int], ...] = param()

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        return one_output(ctx, self, [x], dict(self.shape))


rewrite(
    "reshape_twice",
    "of elements that are counted twice, the second way is all that is left",
    "Reshape(Reshape(x, shape=_), shape=shape)",
    "Reshape(x, shape=shape)",
    example={
        "_": lambda s: (("all", s["N"] * s["C"] * s["H"] * s["W"]),),
        "shape": lambda s: (("n", s["N"]), ("rest", s["C"] * s["H"] * s["W"])),
    },
)


def _single_slice(match: Match) -> dict[str, object] | None:
    """Return the parameters of the Slice and the Reshape that replace a Gather of one index.

    They are ``axes``, ``starts``, ``ends`` and ``steps``, which take this index alone, and
    ``shape``, the Gather's output. None (the rule does not apply) if the index is outside x.
    """
    x, axis, place = match["x"], match["axis"], int(match.numbers["place"])
    size = x.size(axis)
    if not -size <= place < size:
        return None
    cut = {"axes": (axis,), "starts": (place % size,), "ends": (place % size + 1,), "steps": (1,)}
    return {**cut, "shape": tuple(match.output.dims.items())}


rewrite(
    "gather_one",
    "what is picked at one place that is known ahead is a slice",
    "Gather(x, scalar(place), axis=axis)",
    "Reshape(Slice(x, axes=axes, starts=starts, ends=ends, steps=steps), shape=shape)",
    given=_single_slice,
    example={"x": "N C=4 H W", "place": -2, "axis": "C"},
)


@invoker("Reshape", library="numpy")
def reshape(ctx: Context, op: Reshape, x: VTensor, y: VTensor) -> Routine:
    return _Recounted(x, y)


class _Recounted(Routine):
    """The routine of a Reshape: the output y uses the memory of the input x.

    Attributes:
        ways: by layout of x, the layout of y that describes the same bytes.
    """

    def __init__(self, x: VTensor, y: VTensor) -> None:
        ways: dict[Layout, Layout] = {}
        if x.produced_layout is not None:
            with suppress(LayoutError):
                ways[x.produced_layout] = recounted(x.produced_layout, x.dims, y.dims)
        ways.setdefault(declared(x), declared(y))
        super().__init__([x, y], [[*ways], [*ways.values()]], run=share)
        self.ways = ways

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:  # noqa: ARG002
        """Return None if the layouts in ``row``, x's and y's, describe the same bytes.

        Otherwise return the reason why the routine does not take them.
        """
        fits = self.ways.get(row[0]) == row[1]
        return None if fits else f"y does not lie in {row[1]} where x lies in {row[0]}"


def _order(node: Naming | NodeReader, rank: int) -> list[int]:
    """Return, for each axis of a Transpose's output, the index of the input's axis that it is.

    ``rank`` is the number of axes.
    """
    return list(node.attribute("perm") or reversed(range(rank)))


def _transpose_names(node: Naming) -> None:
    for place, position in enumerate(_order(node, node.rank("x0"))):
        node.same("x0", position, "y0", place)


def _read_transpose(node: NodeReader) -> VTensor:
    x = node.input(0)
    names, order = list(x.dims), _order(node, len(x.dims))
    if sorted(order) != list(range(len(names))):
        raise node.refuse(f"perm {order} does not order {len(names)} dims")
    return node.add(Rename(tuple((names[i], names[i]) for i in order)), x)


def _write_transpose(node: NodeWriter, op: Rename) -> None:
    [x], back = node.inputs, {new: old for old, new in op.names}
    order = [back.get(dim, dim) for dim in node.outputs[0].dims]
    node.emit("Transpose", node.operand(x), perm=positions(x, order))


def _renamed(op: Rename, x: VTensor) -> dict[str, int]:
    """Return the sizes of y by dim: x's under their new names, in y's declared order."""
    new = dict(op.names)
    return {new.get(dim, dim): x.size(dim) for dim in (new if len(new) == len(x.dims) else x.dims)}


def _distinct(op: Rename, x: VTensor) -> bool:
    known = dict(op.names).keys() & x.dims.keys()
    return len(known) == len(op.names) and len(_renamed(op, x)) == len(x.dims)


@operator(
    "Rename",
    dims={"x": "*", "y": "*"},
    holds=[(_distinct, "names {op.names} must be of dims of x, each once, and new ones each once")],
    onnx=Spelling(
        "Transpose",
        1,
        _read_transpose,
        _transpose_names,
        write=_write_transpose,
        ahead=AHEAD["Transpose"],
    ),
    traits=[Structural("rename"), Moves(), Opaque()],
)
class Rename:
    """Rename the dims of a tensor. No memory moves.

    If ``names`` lists every dim, y declares its dims in that order; else in x's order.

    Dims:
        x: any    y: x's under their new names
    Args:
        names: pairs of a dim's name in x and its name in y, which may be the same.
    Raises:
        DimError: x lacks a dim, a dim is named twice, or y would have a dim twice.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 2, "C": 3})
    >>> Rename((("C", "K"),)).compute(Context(), x).summary()
    'f32 N=2 K=3'
    >>> Rename((("C", "K"), ("N", "N"))).compute(Context(), x).summary()
    'f32 K=3 N=2'

    Source: ONNX operator Transpose, opset 13, which changes the declared order, not the layout.
    """

    names: tuple[tuple[str, str], ...] = param()

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        return one_output(ctx, self, [x], _renamed(self, x))


def _parts(x: VTensor, sizes: Iterable[int]) -> list[list[str]]:
    """Divide the dims of ``x``, in order, into a group for each number in ``sizes``.

    The number is the product of the sizes in its group. The result has the dims of each group. It
    is empty if the dims cannot be divided in this way.
    """
    remaining, parts = list(x.dims), list[list[str]]()
    for size in sizes:
        part: list[str] = []
        while remaining and (
            (not part and x.size(remaining[0]) == size) or prod(map(x.size, part)) < size
        ):
            part.append(remaining.pop(0))
        if prod(map(x.size, part)) != size:
            return []
        parts.append(part)
    return [] if remaining else parts


def _restored_names(match: Match) -> dict[str, object] | None:
    """Return, under the key ``names``, the renaming of x's dims that replaces two Reshapes.

    It is pairs of a dim of x and its new name. A Rename may stand between the Reshapes. None (the
    rule does not apply) if the first Reshape does not merge whole dims of x, or the second does not
    split them into the same sizes again.
    """
    x, inner = match["x"], dict(match["inner"])
    order = match.parameters.get("order") or [(dim, dim) for dim in inner]
    parts = dict(zip(inner, _parts(x, inner.values()), strict=False))
    if not parts or {old for old, _ in order} != parts.keys():
        return None
    dims = [dim for old, _ in order for dim in parts[old]]
    new, sizes = zip(*match["outer"], strict=True) if match["outer"] else ((), ())
    if [x.size(dim) for dim in dims] != [*sizes]:
        return None
    return {"names": tuple(zip(dims, new, strict=True))}


rewrite(
    "reshape_back",
    "dims that become one, and are then taken apart again, are only named anew",
    """
    counted = Reshape(x, shape=inner)
    Reshape(Rename(counted, names=order), shape=outer) | Reshape(counted, shape=outer)
    """,
    "Rename(x, names=names)",
    given=_restored_names,
    example={
        "x": "N H=4 T=4 F=4",
        "inner": lambda s: (("B", 4 * s["N"]), ("T", 4), ("F", 4)),
        "order": (("B", "B"), ("F", "F"), ("T", "T")),
        "outer": lambda s: (("n", s["N"]), ("h", 4), ("f", 4), ("t", 4)),
    },
)


@invoker("Rename", library="numpy")
def rename(ctx: Context, op: Rename, x: VTensor, y: VTensor) -> Routine:
    back = y.rename({new: old for old, new in op.names})
    return Routine([x, back], [Layout.ANY, Layout.ANY], run=share)


_ROW = "N C H W"


def _image_names(node: Naming) -> None:
    node.name("x0", _ROW)
    node.name("y0", _ROW)
    same_names(node)


def _blocks(name: str, write: Write) -> Spelling:
    def read(node: NodeReader) -> VTensor:
        if node.input(0).ndimensions() != 4:
            raise node.refuse(f"{node.input(0).ndimensions()} dims; an image has four")
        op = named(name)(int(node.attribute("blocksize")), node.attribute("mode", "DCR"))
        return node.add(op, node.input(0, _ROW))

    return Spelling(name, 1, read, _image_names, write=write)


def _write_space(node: NodeWriter, op: SpaceToDepth) -> None:
    if op.mode != "DCR":
        raise node.refuse(f"mode {op.mode}: ONNX has DCR alone here")
    order = _ROW.split()
    node.emit(
        "SpaceToDepth", node.operand(node.inputs[0], order), order=order, blocksize=op.blocksize
    )


@dataclass(frozen=True)
class _Blocks:
    """The shared parameters of DepthToSpace and SpaceToDepth."""

    blocksize: int = param(minimum=1)
    mode: str = param(default="DCR", choices=("DCR", "CRD"))


@operator(
    "DepthToSpace",
    dims={"x": _ROW, "y": _ROW},
    equal=[("x.N", "y.N"), ("x.C", "y.C * blocksize * blocksize")],
    onnx=_blocks("DepthToSpace", write_image("DepthToSpace")),
    traits=[Moves()],
)
class DepthToSpace(_Blocks):
    """Spread channels over squares of pixels.

    y[N, c, H*b + i, W*b + j] = x[N, d, H, W] with b = ``blocksize``; d = (i*b + j)*C' + c in mode
    DCR and d = c*b*b + i*b + j in mode CRD, where C' = C // (b*b).

    Dims:
        x: N C H W    y: N C//(b*b) H*b W*b
    Args:
        blocksize: side of a square, in pixels, at least 1.
        mode: the order in which channels hold a square: ``DCR`` or ``CRD``.
    Raises:
        DimError: C is no multiple of b*b.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 12, "H": 2, "W": 3})
    >>> DepthToSpace(2).compute(Context(), x).summary()
    'f32 N=1 C=3 H=4 W=6'

    Source: ONNX operator DepthToSpace, opset 13.
    """

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        b = self.blocksize
        sizes = {"C": x.size("C") // (b * b), "H": x.size("H") * b, "W": x.size("W") * b}
        return one_output(ctx, self, [x], {**x.dims, **sizes})


def _whole(op: SpaceToDepth, x: VTensor) -> bool:
    return not (x.size("H") % op.blocksize or x.size("W") % op.blocksize)


@operator(
    "SpaceToDepth",
    dims={"x": _ROW, "y": _ROW},
    equal=[("x.N", "y.N"), ("x.C * blocksize * blocksize", "y.C")],
    holds=[(_whole, "H and W must be multiples of {op.blocksize}")],
    onnx=_blocks("SpaceToDepth", _write_space),
    traits=[Moves()],
)
class SpaceToDepth(_Blocks):
    """Gather squares of pixels into channels.

    y[N, d, H', W'] = x[N, c, H'*b + i, W'*b + j] with b = ``blocksize``; d = (i*b + j)*C + c in
    mode DCR and d = c*b*b + i*b + j in mode CRD.

    Dims:
        x: N C H W    y: N C*b*b H//b W//b
    Args:
        blocksize: side of a square, in pixels, at least 1.
        mode: the order in which channels hold a square: ``DCR`` or ``CRD``.
    Raises:
        DimError: H or W is no multiple of b.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 3, "H": 4, "W": 6})
    >>> SpaceToDepth(2).compute(Context(), x).summary()
    'f32 N=1 C=12 H=2 W=3'

    Source: ONNX operator SpaceToDepth, opset 28.
    """

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        b = self.blocksize
        sizes = {"C": x.size("C") * b * b, "H": x.size("H") // b, "W": x.size("W") // b}
        return one_output(ctx, self, [x], {**x.dims, **sizes})


def _eigen_squares(ctx: Context, op: _Blocks, x: VTensor, y: VTensor) -> Routine:
    return eigen.squares(x, y, op.blocksize, op.mode == "CRD")


for _name in ("DepthToSpace", "SpaceToDepth"):
    invoker(_name, library="eigen", dtypes=eigen.MOVED)(_eigen_squares)


@definition("DepthToSpace", "SpaceToDepth", order=lambda _: "NCHW")
def squares(ctx: Context, op: _Blocks, x: PTensor, y: PTensor) -> None:
    b, spread = op.blocksize, isinstance(op, DepthToSpace)
    channels = (y if spread else x).size("C")
    for k, (i, j) in enumerate(product(range(b), repeat=2)):
        together = slice(k * channels, (k + 1) * channels)
        deep = (slice(None), slice(k, None, b * b) if op.mode == "CRD" else together)
        wide = (slice(None), slice(None), slice(i, None, b), slice(j, None, b))
        y.data()[wide if spread else deep] = x.data()[deep if spread else wide]
