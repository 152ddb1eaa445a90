"""Facts about oneDNN: which layouts have fast kernels, and its peculiarities."""

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
    """Return a descriptor of these sizes whose layout oneDNN may choose."""
    return dnnl.Desc.any(dims, DTYPE)


def as_it_lies(x: Tensor) -> list[Desc]:
    """Return the layouts to try for an element-wise operator: that of ``x``, then a plain one."""
    return [x.desc, plain(x.dims)]


def usual(x: Tensor) -> list[Desc]:
    """Return the layouts to try for other operators: that of ``x``, then plain, channels last and
    blocked ones.
    """
    tried = as_it_lies(x)
    if len(x.dims) > 2:
        rest = "cdefgh"[: len(x.dims) - 2]
        blocked = [dnnl.Desc.tag(x.dims, DTYPE, f"aB{rest}{block}b") for block in (16, 8)]
        tried += [channels_last(x.dims), *blocked]
    return tried


def fastest(make: Callable[[T], Primitive], tried: Iterable[T]) -> tuple[Primitive, T]:
    """Return a kernel, and the layout or combination that it was made for.

    It is the first kernel that is not reference code, or the first of all if every one is.

    Args:
        make: makes a kernel for a layout, or for a combination of layouts.
        tried: the layouts, or combinations, in order of preference.

    Raises:
        Unsupported: oneDNN has no kernel for any of them.
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
    """Return a descriptor of other sizes with the layout of ``desc``: its axes' order and blocks.

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
    """Return the memory of a tensor as one axis, its padding included; ``desc`` if that is
    impossible.

    Only a kernel that keeps the padding 0 may run on it. The reason for it: oneDNN's kernel of two
    operands takes few blocked layouts, and below AVX2 none.
    """
    count = prod(desc.padded_dims)
    return dnnl.Desc.strided((count,), DTYPE, (1,)) if desc.nbytes == 4 * count else desc


def followed(ctx: Context, x: Tensor, kernel: Primitive, *over: str) -> Tensor:
    """Record a kernel that reads ``x`` as ``src``, and return the output; convert ``x`` if needed.

    Args:
        ctx: the context that records.
        x: the input.
        kernel: the kernel, with the arguments ``src`` and ``dst``.
        over: ``src`` if the output may be written over the input, else nothing.
    """
    src, dst = ctx.convert(x, kernel.descs["src"]), ctx.allocate(kernel.descs["dst"])
    ctx.call_onednn(kernel, {"src": src, "dst": dst}, over)
    return dst


def bounded(ctx: Context, x: Tensor, high: float) -> Tensor:
    """Record min(max(x, 0), high) with a kernel for each finite bound, and return the output.

    NaN stays NaN. oneDNN's own clip turns it into a bound, so a kernel is max(clip(x), x) for a
    lower bound, and min(clip(x), x) for an upper one: these equal clip(x), and oneDNN's max and min
    return the second operand, x, if one operand is NaN.
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
