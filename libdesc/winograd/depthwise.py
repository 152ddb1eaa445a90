"""The routine: a convolution of each channel by itself, in which nothing is transformed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from libdesc.winograd import native
from libdesc.winograd.routine import OfImages
from ptensor.evaluation import Call, Decline, Variant, forms_on
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.errors import LayoutError
from vtensor.language.operators import Follower
from vtensor.language.tensor import VTensor

#: Elements of a filter across, and steps across, that there are kernels for.
TAPS, STEPS = (3, 5, 7), (1, 2)


class Depthwise(OfImages):
    """A convolution of f32 over two dims of each channel by itself.

    Args:
        src: N C H W.
        weights: G O I h w, where O and I are 1.
        dst: N C H W.
        strides, dilations: one number a spatial dim; dilations are 1.
        pads: all beginnings, then all ends.
        follow: what is fused behind it.

    Raises:
        Decline: it is another convolution.
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
        """What runs."""
        return f"depthwise {self.taps[0]}x{self.taps[1]}"

    def row(self, src: Layout, dst: Layout) -> list[Layout]:
        """The layouts of ``tensors``."""
        return self.around(src, Layout(f"GOIhw{native.load().lanes}g"), dst)

    def preferred(self, call: Call) -> Mapping[int, Layout]:
        """All as src lies, if it may lie so."""
        image = self.images()[0]
        return dict(enumerate(self.named(call, self.row(image, image))))

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """None where all lie as the kernel has them."""
        try:
            own = self.own(call, row)
        except LayoutError as why:
            return str(why)
        if not {own[0], own[-1]} <= {*self.images()}:
            return f"images lie in {' or '.join(map(str, self.images()))}, not {own[0]} {own[-1]}"
        expected = self.row(own[0], own[-1])
        if own != expected:
            return f"all lie in {' '.join(map(str, expected))}, not {' '.join(map(str, own))}"
        return None

    def variants(self, call: Call) -> Iterator[Variant]:
        """Each layout of images."""
        for image in self.images():
            forms = forms_on(call.device, self.named(call, self.row(image, image)))
            yield Variant(call.library, forms, kernel=self.kernel)

    def __call__(self, *tensors: PTensor) -> None:
        """Make the call: one step."""
        self.make(native.load().depthwise, tensors, taps=self.taps, strides=self.strides)
