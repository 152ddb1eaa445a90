"""The routine of exact convolutions of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from libdesc.narrow import native
from libdesc.narrow.ending import Ending
from libdesc.narrow.products import PANEL, panels
from libdesc.routine import Routine
from ptensor.evaluation import Decline, emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.language.operators import Follower
from vtensor.language.tensor import VTensor


class Convolution(Routine):
    """An exact convolution of bytes over one to three spatial dims, with what follows it.

    Images have their channels last.

    Args:
        src: N C and some of D H W.
        weights: O I or G O I, and the same of d h w.
        zeros: none, or their zero points: a scalar; a scalar, or along O or G O.
        dst: N C and the same of D H W.
        strides, dilations: one number per spatial dim.
        pads: pads before each spatial dim, then after each, in elements.
        follow: the fused followers, see ``Ending``.

    Raises:
        Decline: there is no kernel for these zero points or followers, or an operand has no
            elements.
    """

    heavy = True

    def __init__(
        self,
        src: VTensor,
        weights: VTensor,
        zeros: Sequence[VTensor],
        dst: VTensor,
        strides: Sequence[int],
        pads: Sequence[int],
        dilations: Sequence[int],
        follow: Sequence[Follower] = (),
    ) -> None:
        if not all(tensor.num_elements for tensor in (src, weights, dst)):
            raise Decline("an operand has no elements")
        self.spatial = [dim for dim in "DHW" if dim in src.dims]
        rank = len(self.spatial)
        self.strides = list(strides) or [1] * rank
        self.dilations = list(dilations) or [1] * rank
        self.begin = list(pads[: len(pads) // 2]) or [0] * rank
        self.zeros = len(zeros)
        outputs = {dim: weights.size(dim) for dim in "GO" if dim in weights.dims}
        if zeros and (zeros[0].num_elements != 1):
            raise Decline("takes one zero point of an image")
        if zeros and zeros[1].num_elements != 1 and dict(zeros[1].dims) != outputs:
            raise Decline("takes zero points of weights that are one, or one for each output")
        self.ending = Ending(follow, dst, {"C": dst.size("C")})
        image = Layout.plain(["N", *self.spatial, "C"])
        self.groups = weights.dims.get("G", 1)
        self.deep = self.groups > 1 and weights.size("O") == 1 and weights.size("I") == 1
        taps = [dim.lower() for dim in self.spatial]
        order = [*("G" if "G" in weights.dims else ""), "O", *taps, "I"]
        stored = panels(order, "O", "I", weights.dtype)
        if self.deep:
            stored = Layout.plain(["O", "I", *taps, "G"])
        elif not weights.constant or (self.groups > 1 and weights.size("O") < PANEL):
            stored = Layout.plain(order)  # the kernel puts groups together that fill a panel
        self.packed = not (self.deep or stored.is_plain)
        super().__init__(
            [src, weights, *zeros, *self.ending.tensors, dst],
            [
                image,
                stored,
                *(Layout.plain(dim for dim in "GO" if dim in zero.dims) for zero in zeros),
                *self.ending.layouts(image),
                image,
            ],
            follow,
        )

    def __call__(self, *tensors: PTensor) -> None:
        """Emit the call as one step."""
        src, weights, dst = tensors[0], tensors[1], tensors[-1]
        zeros, others = tensors[2 : 2 + self.zeros], tensors[2 + self.zeros : -1]
        counts = [prod(zero.dims.values()) for zero in zeros] or [0, 0]
        ones = [1] * (3 - len(self.spatial))
        kernels = native.load()
        step = (kernels.depthwise if self.deep else kernels.convolution)(
            native.instructions(),
            images=src.size("N"),
            channels=src.size("C"),
            outputs=dst.size("C"),
            groups=self.groups,
            src=[*ones, *map(src.size, self.spatial)],
            dst=[*ones, *map(dst.size, self.spatial)],
            taps=[*ones, *(weights.size(dim.lower()) for dim in self.spatial)],
            strides=[*ones, *self.strides],
            dilations=[*ones, *self.dilations],
            begin=[*(0 for _ in ones), *self.begin],
            src_type=src.dtype,
            weights_type=weights.dtype,
            weights="panels" if self.packed else "plain",
            src_zeros=counts[0],
            weights_zeros=counts[1],
            **self.ending.arguments(others),
        )
        emit(step, [*tensors, *([step.scratch_bytes] if step.scratch_bytes else [])])
