"""Primitives that apply fused followers before the result is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from libdesc.onednn.layouts import PLANE_FORMS
from libdesc.onednn.native import dnnl, speeds
from libdesc.onednn.posts import GELU, PostEltwise, eltwise
from libdesc.onednn.routines import OneDnnRoutine, Operand, Row, is_reference, layouts_of, within
from libdesc.patterns import OTHER, X, binary, bounds, matched, split_bounds
from libdesc.schema import Speed
from ptensor.encoding import Encoding
from ptensor.evaluation import Decline
from ptensor.layout import Layout
from vtensor.errors import LayoutNotSupported
from vtensor.language.dims import is_one
from vtensor.language.expression import Expression
from vtensor.language.operators import Follower, info_of
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Attr, Desc, Primitive


#: The element types in which GELU is fused. In bf16 a result next to one that is no number may be
#: rounded twice; in f16 it could overflow before.
GELU_TYPES = ("f32", "bf16")


class FusingRoutine(OneDnnRoutine):
    """The base class of products of src and weights into which followers (later operators) are
    fused.

    Args:
        operands: src, weights, dst.
        follow: the followers. The first one may add a bias along the dim ``columns`` of dst. All
            others are functions of one element (``ELTWISE``), or of one element and an element of
            another operand (``BINARY``). Two kinds must be the last follower, since they are exact
            only there: bounds with a lower bound of 0, and GELU in f32 or bf16. If an operand
            of a follower has all dims of dst, it has the layout of dst.

    Raises:
        Decline: oneDNN does not run the call, or it cannot fuse a follower.
    """

    #: The index, in dst's order, of the dim that a bias runs along: in this class the channels.
    columns = 1

    def __init__(self, operands: Sequence[Operand], follow: Sequence[Follower]) -> None:
        self.core = tuple(operands)
        self.follower_operands: dict[str, VTensor] = {}
        self.chain: list[PostEltwise | tuple[str, str]] = []
        self.end: Callable[[Attr], Attr] | None = None
        for follower in follow:
            self._take(follower)
        super().__init__(self.all(self.core), follow=follow)

    def _take(self, follower: Follower) -> None:
        """Fuse one more follower, after those that are fused already.

        Raises:
            Decline: the follower cannot be fused.
        """
        does = follower.expression(X, [OTHER] * len(follower.operands))
        _, out, order = self.core[-1]
        widens = does is not None and matched(does, X.to("f32")) is not None
        if widens and out.dtype == "f32" and self.heavy:
            return  # all that precedes is computed in f32
        if self.end is not None:
            raise Decline(f"{self.family} fuses nothing after bounds or gelu")
        if does is not None and len(follower.operands) == 1 and (alg := binary(does)):
            [tensor] = follower.operands
            dim = order[self.columns]
            if alg == "add" and not self.follows and dict(tensor.dims) == {dim: out.dims.get(dim)}:
                self.follower_operands["bias"] = tensor
                return
            types = (out.dtype, self.core[0].tensor.dtype)
            if tensor.dtype in types and _broadcasts(tensor, out):
                name = f"post{len(self.chain)}_src1"
                self.follower_operands[name] = tensor
                self.chain.append((alg, name))
                return
        elif does is not None and (function := eltwise(does)):
            self.chain.append(function)
            return
        elif does is not None and self._take_end(does, out):
            return
        raise Decline(f"{self.family} cannot fuse {info_of(follower.op).name} here")

    def _take_end(self, does: Expression, out: VTensor) -> bool:
        """Fuse bounds or GELU as the last follower; return False if the follower is neither.

        Args:
            does: the follower's expression.
            out: the output, dst.
        """
        before, last = split_bounds(does)
        if (limits := bounds(last)) is not None and limits.low == 0 <= limits.high:
            if (function := eltwise(before)) is not None:
                self.chain.append(function)
            high = limits.high
            self.end = lambda attr: bounded(attr, high)
            return True
        if out.dtype in GELU_TYPES and matched(does, GELU) is not None:
            self.end = dnnl.Attr.gelu
            return True
        return False

    @property
    def follows(self) -> bool:
        """True if the routine has fused followers."""
        return bool(self.follower_operands or self.chain) or self.end is not None

    def all(self, operands: Sequence[Operand], matrix: bool = False) -> tuple[Operand, ...]:
        """Return src, weights and dst, and after them the operands of the followers, with their
        dims in the order of dst.

        Args:
            operands: src, weights, dst.
            matrix: True if a bias has as many dims as dst, False if it has one.
        """
        order = operands[-1].order
        rows = {name: within(order, tensor.dims) for name, tensor in self.follower_operands.items()}
        if "bias" in rows and not matrix:
            rows["bias"] = tuple(filter(None, rows["bias"]))
        return (
            *operands,
            *(Operand(name, self.follower_operands[name], row) for name, row in rows.items()),
        )

    def rows(self) -> Iterator[Row]:
        """Yield ANY for src, weights and dst: oneDNN chooses their layouts."""
        yield [Layout.ANY] * len(self.core)

    def fused(
        self,
        operands: Sequence[Operand],
        row: Row,
        make: Callable[..., Primitive],
        matrix: bool = False,
    ) -> Primitive:
        """Return the primitive with its followers. It must have the same kernel as without them.

        Args:
            operands: src, weights, dst.
            row: the layouts of src, weights and dst; after them those of the followers' operands,
                if they are already decided.
            make: takes descriptors of src, weights, bias and dst, and an attribute.
            matrix: True if a bias has as many dims as dst.

        Raises:
            LayoutNotSupported: oneDNN has no descriptor of a layout.
            Decline: oneDNN has no kernel, or with the followers it would use another kernel.
        """
        if self._has_planes(operands, row):
            return self._in_planes(operands, row, make, matrix)
        unfused = self.build(operands, row[:3], lambda s, w, d: make(s, w, None, d))
        if not self.follows:
            return unfused
        dst = row[2]
        if dst.is_any or len(row) < len(self.all(operands, matrix)):
            [dst] = layouts_of(unfused, operands[-1:])
        asked = [*row[:2], dst, *(row[3:] or self._follower_row(dst))]
        primitive = self.together(operands, asked, make, matrix)
        if primitive.kernel != unfused.kernel:
            raise Decline(
                f"{primitive.kernel} would run it with its followers, in place of {unfused.kernel}"
            )
        return primitive

    def together(
        self,
        operands: Sequence[Operand],
        row: Row,
        make: Callable[..., Primitive],
        matrix: bool = False,
    ) -> Primitive:
        """Return the primitive with its followers, on any kernel.

        Args:
            operands, make, matrix: see ``fused``.
            row: the layouts of src, weights, dst and all operands of followers.

        Raises:
            LayoutNotSupported: oneDNN has no descriptor of a layout.
            Decline: oneDNN has no kernel.
        """
        if self._has_planes(operands, row):
            return self._in_planes(operands, row, make, matrix)

        def make_fused(src: Desc, weights: Desc, dst: Desc, *others: Desc) -> Primitive:
            named = dict(zip(self.follower_operands, others, strict=True))
            attr = self._attr(named) if self.follows else None
            return make(src, weights, named.get("bias"), dst, attr=attr)

        return self.build(self.all(operands, matrix), row, make_fused)

    def rounded_rows(self) -> Iterator[Row]:
        """Yield rows in bf16, then, for each of ``PLANE_FORMS`` whose products in bf16 are faster
        than one in f32, rows with constant weights in its encoding.
        """
        yield from super().rounded_rows()
        factor = speeds().get("bf16", Speed()).products
        tensors = [operand.tensor for operand in self.core]
        constant = (tensors[1].base or tensors[1]).constant
        if not constant or {t.dtype for t in tensors} != {"f32"}:
            return
        for encoding in PLANE_FORMS.values():
            if factor > products_of(encoding):
                for row in self.rows():
                    yield [row[0], row[1].with_encoding(encoding), *row[2:]]

    def _has_planes(self, operands: Sequence[Operand], row: Row) -> bool:
        """Return whether a row has src in f32 and weights in the encoding of a form of planes."""
        src, weights = row[:2]
        plain = operands[0].tensor.dtype == "f32" and src.encoding is None
        return plain and weights.encoding in PLANE_FORMS.values()

    def _in_planes(
        self, operands: Sequence[Operand], row: Row, make: Callable[..., Primitive], matrix: bool
    ) -> Primitive:
        """Return the product with its followers as products of bf16 planes, on one kernel.

        Args: see ``fused``.

        Raises:
            LayoutNotSupported: oneDNN has no descriptor of a layout, or src or dst is not in f32.
            Decline: oneDNN has no such kernel, or has others for followers or sums.
        """
        weights, dst = row[1:3]
        if (
            weights.encoding is None
            or dst.encoding
            or {o.tensor.dtype for o in operands} != {"f32"}
        ):
            raise LayoutNotSupported("a product of planes has src and dst in f32")
        narrow = [row[0].with_encoding("bf16"), weights.with_encoding("bf16"), dst]
        first = self.build(operands, narrow, lambda s, w, d: make(s, w, None, d))
        narrow = layouts_of(first, operands)
        added = dnnl.Attr().sum()
        second = self.build(operands, narrow, lambda s, w, d: make(s, w, None, d, attr=added))
        between = [second] * (products_of(weights.encoding) - 2)

        def make_last(src: Desc, weights: Desc, dst: Desc, *others: Desc) -> Primitive:
            named = dict(zip(self.follower_operands, others, strict=True))
            attr = self._attr(named, dnnl.Attr().binary("add", dst))
            return make(src, weights, named.get("bias"), dst, attr=attr)

        asked = [*narrow, *(row[3:] or self._follower_row(narrow[2]))]
        last = self.build(self.all(operands, matrix), asked, make_last)
        if not first.kernel == second.kernel == last.kernel or is_reference(first):
            raise Decline(f"no one kernel for planes: {first.kernel}, {second.kernel}, {last}")
        return cast("Primitive", dnnl.product_in_planes([first, *between, last]))

    def _follower_row(self, dst: Layout) -> Row:
        """Return a layout for each operand of the followers, given the layout of dst."""
        return [
            dst
            if dict(tensor.dims) == dict(self.core[-1].tensor.dims)
            else Layout.plain(tensor.dims)
            for tensor in self.follower_operands.values()
        ]

    def _attr(self, named: Mapping[str, Desc], attr: Attr | None = None) -> Attr:
        """Return an attribute with the followers, after those that ``attr`` has.

        Args:
            named: the descriptors of the followers' operands.
            attr: an attribute; None is an empty one.
        """
        attr = attr or dnnl.Attr()
        for post in self.chain:
            if isinstance(post, PostEltwise):
                attr = attr.eltwise(*post)
            else:
                alg, name = post
                attr = attr.binary(alg, named[name])
        return attr if self.end is None else self.end(attr)


def products_of(weights: Encoding) -> int:
    """Return the number of products in bf16 that multiply src in two planes by encoded weights.

    The product of the two smaller planes is left out.
    """
    return 1 + len(weights.planes)


def _broadcasts(tensor: VTensor, out: VTensor) -> bool:
    """Return whether an operand can be repeated to the dims of the output."""
    return all(is_one(size) or size in (out.dims.get(dim), 1) for dim, size in tensor.dims.items())


def bounded(attr: Attr, high: float) -> Attr:
    """Return an attribute with the followers of ``attr``, then the bounds 0 and ``high``."""
    return attr.bounds(high)
