"""Changes of the element type, of values or of bits; and the identity."""

from __future__ import annotations

from math import nan

from libdesc import invoker
from libdesc.numpy.casts import cast
from ops._elements import AHEAD
from ops._elementwise import Unary, elementwise, narrowed
from ops._names import same_names
from ptensor import Layout, PTensor, lib_tagger, share
from vtensor.errors import DTypeError
from vtensor.language.dtype import ITEMSIZE, bits
from vtensor.operators import Context, NodeReader, NodeWriter, Opaque, Spelling, Structural, param
from vtensor.tensor import VTensor

#: The element types that are cast: all but complex numbers.
_TYPES = tuple(name for name in ITEMSIZE if name not in ("c64", "c128"))


@elementwise("Identity", 1, None, traits=[Structural("identity"), Opaque()])
class Identity(Unary):
    """Return the same tensor: y = x. No memory moves.

    Dims:
        x, y: any, the same

    >>> from vtensor.operators import Context
    >>> Identity().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Identity, opset 16.
    """


@invoker("BitCast", library="numpy")
@invoker("Identity", library="numpy")
def numpy_same(ctx: Context, op: object, x: VTensor, y: VTensor) -> None:
    """Let the output ``y`` use the memory of the input ``x``, so that no step runs."""
    src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
    if lib_tagger("numpy", [src], [dst]):
        return
    share(src, dst)


def _read(node: NodeReader) -> VTensor:
    to = node.input(1).dtype if node.has(1) else node.element_type("to")
    x, saturate = node.input(0), bool(node.attribute("saturate", 1))
    cast = Cast(to, saturate, node.attribute("round_mode", "up"))
    return node.add(Identity() if x.dtype == to else cast, x)


def _write(node: NodeWriter, op: Cast) -> None:
    if not op.saturate or op.round_mode != "up":
        raise node.refuse("rounding that ONNX knows from opset 19 and 24 on is not written")
    node.emit("Cast", *map(node.operand, node.inputs), to=node.element_type(op.to))


def _zero(op: Cast) -> float:
    """Return the result of casting 0 to ``op.to``.

    It is 0, except for f8e8m0, which has no 0: there it is the smallest number, or NaN if
    ``op.saturate`` is False.
    """
    return 0 if op.to != "f8e8m0" else 2**-127 if op.saturate else nan


@elementwise(
    "Cast",
    [
        Spelling("Cast", 6, _read, same_names, write=_write, ahead=AHEAD["Cast"]),
        Spelling("CastLike", 15, _read, same_names),
    ],
    lambda op, x: cast(x, op.to, op.saturate, op.round_mode),
    _TYPES,
    zero=_zero,
    expression=lambda op, x: narrowed(x, op.to, op.saturate),
    traits=[Structural("cast")],
)
class Cast(Unary):
    """Convert the values to another element type.

    A float becomes an integer by cutting off its fraction; beyond the integer's range it becomes
    the nearest end, and NaN becomes 0; an integer of less than a byte takes the lower bits of the
    whole part. An integer loses its upper bits in a narrower type. A float is rounded to the
    nearest narrower one, ties to even. A truth value becomes 1 or 0; any number but 0 becomes true.
    f8e8m0 has powers of two only: negative numbers become NaN.

    Dims:
        x, y: any, the same
    Args:
        to: the element type; any but complex numbers.
        saturate: concerns numbers beyond the range of a float type of a byte or less. True turns
            numbers that are too large into the type's largest, and numbers too small for f8e8m0
            into its smallest. False turns them into infinity if the type has it, else NaN. Types of
            4 and 6 bits have neither, and always saturate.
        round_mode: for f8e8m0 only: ``"up"``, ``"down"``, or ``"nearest"`` with ties up.

    >>> from vtensor.operators import Context
    >>> Cast("s32").compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    's32 N=2 C=3'

    Source: ONNX operators Cast and CastLike, opset 24.
    """

    to: str = param(choices=_TYPES)
    saturate: bool = param(default=True)
    round_mode: str = param(default="up", choices=("up", "down", "nearest"))


def _read_bits(node: NodeReader) -> VTensor:
    return node.add(BitCast(node.element_type("to")), node.input(0))


@elementwise(
    "BitCast",
    Spelling("BitCast", 26, _read_bits, same_names),
    None,
    {},
)
class BitCast(Unary):
    """Reinterpret the bits in another element type of as many bits. No memory moves.

    Dims:
        x, y: any, the same
    Args:
        to: the element type.
    Raises:
        DTypeError: ``to`` has another number of bits than x's element type.

    >>> from vtensor.operators import Context
    >>> BitCast("u32").compute(Context(), VTensor("f32", {"N": 2})).summary()
    'u32 N=2'

    Source: ONNX operator BitCast, opset 26.
    """

    to: str = param(choices=tuple(ITEMSIZE))

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        if (have := bits(x.dtype)) != (want := bits(self.to)):
            text = f"{ctx.op} {ctx.node!r}: {x.dtype} has {have} bits, {self.to} has {want}"
            raise DTypeError(f"{text}; to fix: name a type of as many")
        return super().compute(ctx, x)
