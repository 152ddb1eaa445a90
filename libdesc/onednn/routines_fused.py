"""Primitives that apply what is fused behind them before anything is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from libdesc.onednn.native import dnnl
from libdesc.onednn.posts import GELU, Eltwise, eltwise
from libdesc.onednn.routines import OneDnnRoutine, Operand, Row, layouts_of, within
from libdesc.patterns import OTHER, X, binary, bounds, matched, split_bounds
from ptensor.evaluation import Decline
from ptensor.layout import Layout
from vtensor.language.dims import is_one
from vtensor.language.expression import Expression
from vtensor.language.operators import Follower, info_of
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Attr, Desc, Primitive


class FusingRoutine(OneDnnRoutine):
    """A product of src and weights, plus a bias, whatever of the followers it can take.

    Args:
        operands: src, weights, dst.
        follow: a bias along dst's dim ``columns``, which must come first; functions of one element
            (``libdesc/onednn/posts.py``) and of another operand (``libdesc/patterns.py``); bounds
            of which the lower is 0, or an f32's gelu, which must come last: only there are they
            exact. An operand with all of dst's dims lies as dst does.

    Raises:
        Decline: as OneDnnRoutine, or it cannot take a follower.
    """

    #: The number of dst's dim that a bias of oneDNN's lies along: here the channels.
    columns = 1

    def __init__(self, operands: Sequence[Operand], follow: Sequence[Follower]) -> None:
        self.own = tuple(operands)
        self.behind: dict[str, VTensor] = {}
        self.chain: list[Eltwise | tuple[str, str]] = []
        self.end: Callable[[Attr], Attr] | None = None
        for follower in follow:
            self._take(follower)
        super().__init__(self.all(self.own), follow=follow)

    def _take(self, follower: Follower) -> None:
        """Add a follower to the chain."""
        does = follower.expression(X, [OTHER] * len(follower.operands))
        _, out, order = self.own[-1]
        if self.end is not None:
            raise Decline(f"{self.family} takes nothing behind bounds or gelu")
        if does is not None and len(follower.operands) == 1 and (alg := binary(does)):
            [tensor] = follower.operands
            dim = order[self.columns]
            if alg == "add" and not self.follows and dict(tensor.dims) == {dim: out.dims.get(dim)}:
                self.behind["bias"] = tensor
                return
            if _meets(tensor, out):
                name = f"post{len(self.chain)}_src1"
                self.behind[name] = tensor
                self.chain.append((alg, name))
                return
        elif does is not None and (function := eltwise(does)):
            self.chain.append(function)
            return
        elif does is not None and self._ended(does, out):
            return
        raise Decline(f"{self.family} does not take {info_of(follower.op).name} behind it so")

    def _ended(self, does: Expression, out: VTensor) -> bool:
        """Take what nothing can follow; False where it is no such."""
        before, last = split_bounds(does)
        if (found := bounds(last)) is not None and found.low == 0 <= found.high:
            if (function := eltwise(before)) is not None:
                self.chain.append(function)
            high = found.high
            self.end = lambda attr: bounded(attr, high)
            return True
        if out.dtype == "f32" and matched(does, GELU) is not None:
            self.end = dnnl.Attr.gelu
            return True
        return False

    @property
    def follows(self) -> bool:
        """Whether anything is fused behind it."""
        return bool(self.behind or self.chain) or self.end is not None

    def all(self, own: Sequence[Operand], matrix: bool = False) -> tuple[Operand, ...]:
        """The operands, those of followers as dst numbers its dims; a bias has its own dim alone.

        Args:
            own: src, weights, dst.
            matrix: a bias has as many dims as dst.
        """
        order = own[-1].order
        rows = {name: within(order, tensor.dims) for name, tensor in self.behind.items()}
        if "bias" in rows and not matrix:
            rows["bias"] = tuple(filter(None, rows["bias"]))
        return (*own, *(Operand(name, self.behind[name], row) for name, row in rows.items()))

    def rows(self) -> Iterator[Row]:
        """What is its own as oneDNN likes; the operands of followers go by dst."""
        yield [Layout.ANY] * len(self.own)

    def fused(
        self, own: Sequence[Operand], row: Row, make: Callable[..., Primitive], matrix: bool = False
    ) -> Primitive:
        """The primitive on its operands and those of its followers.

        Args:
            own: src, weights, dst.
            row: their layouts, then those of the followers' operands where they are decided.
            make: from descriptors of src, weights, bias and dst, and attributes.
            matrix: a bias has as many dims as dst.

        Raises:
            LayoutNotSupported, Decline: as ``primitive``, or the followers cost it its kernel.
        """

        unfused = self.build(own, row[:3], lambda s, w, d: make(s, w, None, d))
        if not self.follows:
            return unfused
        dst = row[2]
        if dst.is_any or len(row) < len(self.all(own, matrix)):
            [dst] = layouts_of(unfused, own[-1:])
        asked = [*row[:2], dst, *(row[3:] or self._follower_row(dst))]
        found = self.together(own, asked, make, matrix)
        if found.kernel != unfused.kernel:
            raise Decline(f"{found.kernel} would run it so, in place of {unfused.kernel}")
        return found

    def together(
        self, own: Sequence[Operand], row: Row, make: Callable[..., Primitive], matrix: bool = False
    ) -> Primitive:
        """The same in layouts that are all decided, whatever kernel the followers leave it.

        Raises:
            LayoutNotSupported, Decline: as ``primitive``.
        """

        def made(src: Desc, weights: Desc, dst: Desc, *rest: Desc) -> Primitive:
            named = dict(zip(self.behind, rest, strict=True))
            attr = self._attr(named) if self.follows else None
            return make(src, weights, named.get("bias"), dst, attr=attr)

        return self.build(self.all(own, matrix), row, made)

    def _follower_row(self, dst: Layout) -> Row:
        """How operands of followers lie where dst lies so."""
        return [
            dst
            if dict(tensor.dims) == dict(self.own[-1].tensor.dims)
            else Layout.plain(tensor.dims)
            for tensor in self.behind.values()
        ]

    def _attr(self, named: Mapping[str, Desc]) -> Attr:
        attr = dnnl.Attr()
        for post in self.chain:
            if isinstance(post, Eltwise):
                attr = attr.eltwise(*post)
            else:
                alg, name = post
                attr = attr.binary(alg, named[name])
        return attr if self.end is None else self.end(attr)


def _meets(tensor: VTensor, out: VTensor) -> bool:
    """Whether an operand has no dims but those of the output, of one element or as many."""
    return tensor.dtype == out.dtype and all(
        is_one(size) or size in (out.dims.get(dim), 1) for dim, size in tensor.dims.items()
    )


def bounded(attr: Attr, high: float) -> Attr:
    """An attribute with the bounds 0 and ``high`` behind it."""
    return attr.bounds(high)
