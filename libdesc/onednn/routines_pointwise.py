"""Element-wise primitives, in any layout that their operands share."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import TYPE_CHECKING, NamedTuple

from libdesc.onednn.layouts import canonical_order
from libdesc.onednn.native import dnnl
from libdesc.onednn.routines import OneDnnRoutine, Operand, emit_on, is_reference, within
from ptensor.evaluation import Decline
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.language.dims import same_sizes
from vtensor.language.dtype import numpy_dtype
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Desc, Primitive


class Function(NamedTuple):
    """A function f of one element x: oneDNN's name and constants, and how it is computed so that
    NaN stays NaN.

    For a NaN, oneDNN's ``relu`` and ``clip`` return a bound, and its ``exp`` returns infinity. If
    ``keep`` is not empty, it says how this is prevented:

    - ``"max"``, if f(x) >= x for all x: max(f(x), x) is computed. It is f(x) for a number x. It is
      x for a NaN, since oneDNN's max returns the second operand if one operand is a NaN;
    - ``"min"``, if f(x) <= x for all x: min(f(x), x) is computed likewise;
    - ``"end"``: the method of ``Attr`` that is named ``alg`` computes f exactly.
    """

    alg: str
    alpha: float = 0.0
    beta: float = 0.0
    keep: str = ""

    def primitive(self, src: Desc, dst: Desc) -> Primitive:
        """Return the primitive that computes the function on src and dst. If ``keep`` is not empty,
        each of its inputs is src.
        """
        if self.keep == "end":
            if src == dst:
                src = dst = flat(dst, keeps_zero=True)
            return dnnl.binary("max", src, src, dst, getattr(dnnl.Attr(), self.alg)())
        if self.keep:
            if src == dst:
                src = dst = flat(dst, self.alg == "clip" and self.alpha <= 0 <= self.beta)
            attr = dnnl.Attr().eltwise(self.alg, self.alpha, self.beta).binary(self.keep, src)
            return dnnl.binary("max", src, src, dst, attr)
        return dnnl.eltwise(self.alg, src, dst, self.alpha, self.beta)


def flat(desc: Desc, keeps_zero: bool) -> Desc:
    """Return a descriptor of the same memory as ``desc``, pads included, as a vector: with a single
    dim.

    oneDNN's binary kernel takes few layouts with blocks, and none of them on processors below AVX2.

    Args:
        desc: the descriptor; it is returned unchanged if its memory has gaps.
        keeps_zero: True if the function maps 0 to 0, so that pads stay 0. If False, the descriptor
            of memory with pads is returned unchanged.
    """
    count = prod(desc.padded_dims)
    dense = desc.nbytes == count * numpy_dtype(desc.dtype).itemsize
    if not dense or (desc.padded_dims != desc.dims and not keeps_zero):
        return desc
    return dnnl.Desc.strided((count,), desc.dtype, (1,))


def _numbered(desc: Desc) -> Desc:
    """Return a descriptor of the same memory as ``desc``, but with the usual strides for dims of
    size 1.

    oneDNN's binary kernel compares all strides. If those of dims of size 1 are unusual and an
    operand is repeated, it computes nothing, or leaves out elements.
    """
    if 0 in desc.dims or desc.inner_blocks:
        return desc
    strides, inner = list(desc.strides), 1
    for axis in reversed(range(len(strides))):
        if strides[axis] != inner and desc.dims[axis] == 1:
            strides[axis] = inner
        if axis:
            inner = max(inner, strides[axis] * desc.dims[axis])
    return dnnl.Desc.strided(desc.dims, desc.dtype, strides)


class _Functions(OneDnnRoutine):
    """Functions of each element, one after another.

    Args:
        functions: the functions. The first one reads src and writes dst; the others change dst.
        src, dst: the same dims.
    """

    def __init__(self, functions: Sequence[Function], src: VTensor, dst: VTensor) -> None:
        order = canonical_order(src.dims)
        name = "src0" if functions[0].keep else "src"
        operands = [Operand(name, src, order), Operand("dst", dst, order)]
        super().__init__(operands, [Layout.ANY] * 2)
        self.functions = tuple(functions)

    def make(self, src: Desc, dst: Desc) -> Primitive:
        """Return the primitive of one of the functions. By its kernel it is decided whether oneDNN
        takes the call.

        It is the first primitive that is reference code. If none is, it is that of the first
        function.
        """
        primitives = [function.primitive(src, dst) for function in self.functions]
        return next(filter(is_reference, primitives), primitives[0])

    def __call__(self, *tensors: PTensor) -> None:
        """Emit a step for each function."""
        (first, last), (src, dst) = self.operands, tensors
        for function in self.functions:
            row = [src.required_layout, dst.required_layout]
            primitive = self.build((first, last), row, function.primitive)
            emit_on(primitive, dict.fromkeys(primitive.descs, src) | {"dst": dst})
            first, src = last, dst


class Eltwise(_Functions):
    """A function of each element.

    Args:
        alg: oneDNN's name of the function: ``"tanh"``, ``"linear"``, ...
        src, dst: the same dims.
        alpha, beta: the function's constants.
        keep: how NaN stays NaN, see ``Function``.
    """

    def __init__(
        self,
        alg: str,
        src: VTensor,
        dst: VTensor,
        alpha: float = 0.0,
        beta: float = 0.0,
        keep: str = "",
    ) -> None:
        super().__init__([Function(alg, alpha, beta, keep)], src, dst)


class Clip(_Functions):
    """The function min(max(scale * x + shift, low), high); NaN stays NaN.

    The linear part and each bound that is finite are a step each.

    Args:
        src, dst: the same dims.
        low, high: the bounds; an infinite one is left out.
        scale, shift: constants of the linear part, which is left out if they are 1 and 0.

    Raises:
        Decline: there are no bounds and no linear part.
    """

    def __init__(
        self,
        src: VTensor,
        dst: VTensor,
        low: float = -inf,
        high: float = inf,
        scale: float = 1.0,
        shift: float = 0.0,
    ) -> None:
        functions = [Function("linear", scale, shift)] if (scale, shift) != (1, 0) else []
        functions += [Function("clip", low, inf, "max")] if low > -inf else []
        functions += [Function("clip", -inf, high, "min")] if high < inf else []
        if not functions:
            raise Decline("has no bounds")
        super().__init__(functions, src, dst)


class Binary(OneDnnRoutine):
    """A function of two elements; the operands are aligned by the names of their dims.

    An operand is repeated along dims that it lacks or has with size 1. oneDNN can repeat only its
    second operand. If the first one must be repeated, the operands of a commutative function are
    exchanged.

    Args:
        alg: oneDNN's name of the function: ``"add"``, ``"mul"``, ``"sub"``, ...
        left, right: any of dst's dims, with dst's size or size 1.
        dst: the result; it has the dims of both.

    Raises:
        Decline: the first operand would have to be repeated.
    """

    def __init__(self, alg: str, left: VTensor, right: VTensor, dst: VTensor) -> None:
        if alg in ("add", "mul", "max", "min") and not same_sizes(left.dims, dst.dims):
            left, right = right, left
        order = canonical_order(dst.dims)
        named = {"src0": left, "src1": right, "dst": dst}
        operands = [Operand(k, t, within(order, t.dims)) for k, t in named.items()]
        super().__init__(operands, [Layout.ANY] * 3)
        if not _whole(left, dst):
            raise Decline(f"repeats one operand of {alg} only, not both")
        self.alg = alg
        self.whole = same_sizes(left.dims, dst.dims) and same_sizes(right.dims, dst.dims)

    def make(self, src0: Desc, src1: Desc, dst: Desc) -> Primitive:
        """Return the binary primitive for these descriptors."""
        if self.whole and src0 == src1 == dst:
            src0 = src1 = dst = flat(dst, keeps_zero=self.alg != "div")
        else:
            src0, src1, dst = map(_numbered, (src0, src1, dst))
        return dnnl.binary(self.alg, src0, src1, dst)


class Prelu(OneDnnRoutine):
    """The function x if x >= 0, else slope * x.

    Args:
        src, dst: the same dims.
        slopes: some of the dims of src, each with its size there or size 1.

    Raises:
        Decline: src would have to be repeated along a dim of ``slopes``.
    """

    def __init__(self, src: VTensor, slopes: VTensor, dst: VTensor) -> None:
        order = canonical_order(dst.dims)
        named = {"src": src, "weights": slopes, "dst": dst}
        operands = [Operand(k, t, within(order, t.dims)) for k, t in named.items()]
        super().__init__(operands, [Layout.ANY] * 3)
        if not _whole(src, dst):
            raise Decline("repeats the slopes only")

    def make(self, src: Desc, slopes: Desc, dst: Desc) -> Primitive:
        """Return the PReLU primitive for these descriptors."""
        if src == slopes == dst:  # oneDNN's kernel writes to the pads of blocks
            src = slopes = dst = flat(dst, keeps_zero=True)
        return dnnl.prelu(src, slopes, dst)


def _whole(tensor: VTensor, dst: VTensor) -> bool:
    return dict(tensor.dims) == dict(dst.dims)
