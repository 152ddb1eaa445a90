"""The routine of depthwise convolutions, computed without a transform."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from libdesc.winograd import native
from libdesc.winograd.routine import ImageRoutine
from ptensor.evaluation import Call, Decline, Variant, forms_on
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.errors import LayoutError
from vtensor.language.operators import Follower
from vtensor.language.tensor import VTensor

#: The widths of filters, and the horizontal strides, for which there are kernels.
TAPS, STEPS = (3, 5, 7), (1, 2)


class Depthwise(ImageRoutine):
    """A depthwise convolution of f32 over two dims.

    Args:
        src: N C H W.
        weights: G O I h w, where O and I are 1.
        dst: N C H W.
        strides, dilations: one number per spatial dim; dilations are 1.
        pads: pads before each spatial dim, then after each, in elements.
        follow: fused followers, see ``ImageRoutine``.

    Raises:
        Decline: there is no kernel for this convolution, or it cannot fuse a follower.
    """

    def __init__(
        self,
        src: VTensor,
        weights: VTensor,
        dst: VTensor,
        strides: Sequence[int],
        pads: Sequence[int],
        dilations: Sequence[int],
        follow: Sequence[Follower] = (),
    ) -> None:
        self.taps = [weights.size("h"), weights.size("w")]
        self.strides = list(strides)
        if weights.size("O") != 1 or {*dilations} != {1}:
            raise Decline("takes one filter a channel, and windows whose elements are neighbours")
        if self.taps[1] not in TAPS or strides[1] not in STEPS:
            raise Decline(f"takes {TAPS} elements across, and steps of {STEPS}")
        if any(pad >= taps for pad, taps in zip(pads, self.taps * 2, strict=True)):
            raise Decline("takes windows that each see something of the image")
        if not all(tensor.num_elements for tensor in (src, weights, dst)):
            raise Decline("an operand has no elements")
        super().__init__(src, weights, dst, pads, follow)

    @property
    def kernel(self) -> str:
        """The kernel's name in plans."""
        return f"depthwise {self.taps[0]}x{self.taps[1]}"

    def row(self, src: Layout, dst: Layout) -> list[Layout]:
        """Return the layouts of ``self.tensors``, from those of src and dst."""
        return self.row_of(src, Layout(f"GOIhw{native.load().lanes}g"), dst)

    def preferred(self, call: Call) -> Mapping[int, Layout]:
        """Return the preferred layouts by operand index. src and dst have the same layout.

        This is the one in which src is produced; another one if there is no kernel for it.
        """
        image = self.image_layouts()[0]
        return dict(enumerate(self.by_operand(call, self.row(image, image))))

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """Return None if there is a kernel for these layouts, else the reason why not.

        Args:
            call: the call.
            row: a layout per operand of the call.
        """
        try:
            layouts = self.by_tensor(call, row)
        except LayoutError as why:
            return str(why)
        if not {layouts[0], layouts[-1]} <= {*self.image_layouts()}:
            known = " or ".join(map(str, self.image_layouts()))
            return f"takes images in {known}, not {layouts[0]} {layouts[-1]}"
        expected = self.row(layouts[0], layouts[-1])
        if layouts != expected:
            known, asked = (" ".join(map(str, row)) for row in (expected, layouts))
            return f"takes operands in {known}, not {asked}"
        return None

    def variants(self, call: Call) -> Iterator[Variant]:
        """Yield a variant for each layout that src and dst may have; both have the same one."""
        for image in self.image_layouts():
            forms = forms_on(call.device, self.by_operand(call, self.row(image, image)))
            yield Variant(call.library, forms, kernel=self.kernel)

    def __call__(self, *tensors: PTensor) -> None:
        """Emit the call as one step."""
        self.make(native.load().depthwise, tensors, taps=self.taps, strides=self.strides)
