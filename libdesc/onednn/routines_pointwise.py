"""Element-wise primitives, in whatever layout their operands share."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from libdesc.onednn.layouts import Order, canonical_order
from libdesc.onednn.routines import OneDnnRoutine, Operand
from ptensor.evaluation import Decline
from ptensor.tensor import PTensor
from vtensor.operators import Follower

if TYPE_CHECKING:
    from collections.abc import Mapping

    from libdesc.onednn._onednn import Desc, Primitive


class Eltwise(OneDnnRoutine):
    """A function of each element.

    Args:
        alg: oneDNN's name of it: ``"relu"``, ``"clip"``, ...
        src, dst: the same dims.
        alpha, beta: its constants.
        post: operators fused behind it.
    """

    def __init__(
        self,
        alg: str,
        src: PTensor,
        dst: PTensor,
        alpha: float = 0.0,
        beta: float = 0.0,
        post: Sequence[Follower] = (),
    ) -> None:
        order = canonical_order(src.dims)
        super().__init__([Operand("src", src, order), Operand("dst", dst, order)], post)
        self.alg, self.alpha, self.beta = alg, alpha, beta

    def make(self, dnnl: ModuleType, *descs: Desc) -> Primitive:
        """The primitive on src and dst."""
        primitive: Primitive = dnnl.eltwise(self.alg, *descs, self.alpha, self.beta)
        return primitive


class Binary(OneDnnRoutine):
    """A function of two elements that meet by the names of their dims.

    oneDNN repeats its second operand only, so the one that is whole comes first where the order
    makes no difference.

    Args:
        alg: oneDNN's name of it: ``"add"``, ``"mul"``, ``"sub"``, ...
        left, right: any of dst's dims, with dst's size or size 1.
        dst: the dims of both.
        post: operators fused behind it.

    Raises:
        Decline: the first operand would have to be repeated.
    """

    def __init__(
        self,
        alg: str,
        left: PTensor,
        right: PTensor,
        dst: PTensor,
        post: Sequence[Follower] = (),
    ) -> None:
        if alg in ("add", "mul", "max", "min") and not _whole(left, dst):
            left, right = right, left
        order = canonical_order(dst.dims)
        named = {"src0": left, "src1": right, "dst": dst}
        super().__init__([Operand(k, t, within(order, t.dims)) for k, t in named.items()], post)
        if not _whole(left, dst):
            raise Decline(f"repeats one operand of {alg} only, not both")
        self.alg = alg

    def make(self, dnnl: ModuleType, *descs: Desc) -> Primitive:
        """The primitive on src0, src1 and dst."""
        primitive: Primitive = dnnl.binary(self.alg, *descs)
        return primitive


def _whole(tensor: PTensor, dst: PTensor) -> bool:
    return dict(tensor.dims) == dict(dst.dims)


def within(order: Order, dims: Mapping[str, int]) -> Order:
    """A numbering of all dims, as an operand sees it that lacks some of them."""
    return tuple(dim if dim in dims else "" for dim in order)
