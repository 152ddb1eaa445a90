"""Calls of oneDNN from layout-aware operators: the choice of layouts that have fast kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf, prod
from typing import TYPE_CHECKING, TypeVar

from eval.layout_aware.context import Context, Unsupported
from eval.layout_aware.tensor import DTYPE, Sizes, Tensor, channels_last, plain
from libdesc.onednn.native import dnnl

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Desc, Primitive

T = TypeVar("T")


def unspecified(dims: Sizes) -> Desc:
    """Return a descriptor with the sizes ``dims``, whose layout oneDNN is to choose."""
    return dnnl.Desc.any(dims, DTYPE)


def as_it_lies(x: Tensor) -> list[Desc]:
    """Return the layouts to try for an element-wise operator: that of ``x``, then a plain one."""
    return [x.desc, plain(x.dims)]


def usual(x: Tensor) -> list[Desc]:
    """Return the layouts to try for an operator that is not element-wise.

    They are that of ``x``, a plain one and, for images, channels last and blocks of channels.
    """
    tried = as_it_lies(x)
    if len(x.dims) > 2:
        rest = "cdefgh"[: len(x.dims) - 2]
        blocked = [dnnl.Desc.tag(x.dims, DTYPE, f"aB{rest}{block}b") for block in (16, 8)]
        tried += [channels_last(x.dims), *blocked]
    return tried


def fastest(make: Callable[[T], Primitive], tried: Iterable[T]) -> tuple[Primitive, T]:
    """Return the first fast kernel of oneDNN, and the element of ``tried`` for which it was made.

    Fast is what oneDNN does not call reference code. If all kernels are reference code, the first
    one is returned.

    Args:
        make: makes a kernel for an element of ``tried``.
        tried: layouts, or combinations of layouts, in order of preference.

    Raises:
        Unsupported: oneDNN has no kernel for any element of ``tried``.
    """
    slow: list[tuple[Primitive, T]] = []
    for layout in dict.fromkeys(tried):
        try:
            kernel = make(layout)
        except (dnnl.Unimplemented, ValueError):
            continue
        if not any(part.startswith("ref") for part in kernel.kernel.split("+")):
            return kernel, layout
        slow.append((kernel, layout))
    if not slow:
        raise Unsupported(f"has no kernel on {dnnl.isa()}")
    return slow[0]


def like(desc: Desc, dims: Sizes) -> Desc:
    """Return a descriptor of the sizes ``dims`` with the order of axes and the blocks of ``desc``.

    >>> like(channels_last((1, 8, 5, 5)), (1, 3, 5, 5)).strides
    (75, 1, 15, 3)
    """
    axes, blocked = range(len(dims)), {axis for _, axis in desc.inner_blocks}
    outer = sorted(axes, key=lambda axis: -desc.strides[axis])
    if not blocked:
        return plain(dims, outer)
    letters = [chr(ord("A" if axis in blocked else "a") + axis) for axis in outer]
    inner = [f"{block}{chr(ord('a') + axis)}" for block, axis in desc.inner_blocks]
    return dnnl.Desc.tag(dims, DTYPE, "".join([*letters, *inner]))


def in_a_row(desc: Desc) -> Desc:
    """Return a descriptor of all memory of a tensor as one axis, padding of blocks included.

    Element-wise kernels can run on it in any layout, if they keep the padding 0: oneDNN's kernel of
    two operands takes few blocked layouts, and below AVX2 none. If the memory has gaps, ``desc`` is
    returned.
    """
    count = prod(desc.padded_dims)
    return dnnl.Desc.strided((count,), DTYPE, (1,)) if desc.nbytes == 4 * count else desc


def followed(ctx: Context, x: Tensor, kernel: Primitive, *over: str) -> Tensor:
    """Record a call of a kernel with one input, and return its output.

    The input is converted if the kernel needs another layout.

    Args:
        ctx: the context that records.
        x: the input.
        kernel: the kernel, with the arguments ``src`` and ``dst``.
        over: ``src`` if the output may use the input's memory as its own, else nothing.
    """
    src, dst = ctx.convert(x, kernel.descs["src"]), ctx.allocate(kernel.descs["dst"])
    ctx.call_onednn(kernel, {"src": src, "dst": dst}, over)
    return dst


def bounded(ctx: Context, x: Tensor, high: float) -> Tensor:
    """Record calls of oneDNN that compute min(max(x, 0), high), and return the output.

    NaN stays NaN. There is a call for each finite bound. oneDNN's clip would turn NaN into a bound.
    So a call computes max(clip(x), x) for the lower bound, or min(clip(x), x) for the upper one:
    both equal clip(x), except that oneDNN's max and min return their second operand, x, for NaN.
    """

    def bound(desc: Desc, low: float, high: float, keep: str) -> Primitive:
        row = in_a_row(desc)
        attr = dnnl.Attr().eltwise("clip", low, high).binary(keep, row)
        return dnnl.binary("max", row, row, row, attr)

    _, desc = fastest(lambda desc: bound(desc, 0, inf, "max"), as_it_lies(x))
    src, dst = ctx.convert(x, desc), ctx.allocate(desc)
    for kernel in (bound(desc, 0, inf, "max"), bound(desc, -inf, high, "min"))[: 1 + (high < inf)]:
        ctx.call_onednn(kernel, dict.fromkeys(kernel.slots, src) | {"dst": dst}, ["src0"])
        src = dst
    return dst
