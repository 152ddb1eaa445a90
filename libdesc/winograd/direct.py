"""The routine of convolutions whose input has few channels, in the layout NCHW.

Models get their images in this layout. In a layout with blocks of channels, most of each vector
would be pads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from libdesc.winograd import native
from libdesc.winograd.routine import CHANNELS_FIRST, Convolution, ImageRoutine
from ptensor.evaluation import Call, Decline, Variant, forms_on
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.errors import LayoutError
from vtensor.language.operators import Follower
from vtensor.language.tensor import VTensor

#: The most input channels, and the largest height and width of a filter. Up to these, the weights
#: and the image rows under a window stay in the L1 cache.
MAX_CHANNELS, MAX_TAPS = 4, 12

#: Horizontal strides for which kernels exist.
STEPS = (1, 2, 4)


class Direct(ImageRoutine):
    """A convolution of f32 over two dims, of an image of few channels.

    Args:
        src: N C H W.
        weights: O I h w.
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
        if "G" in weights.dims or src.size("C") > MAX_CHANNELS or max(self.taps) > MAX_TAPS:
            raise Decline(
                f"takes up to {MAX_CHANNELS} channels of one group, {MAX_TAPS} elements each way"
            )
        if strides[1] not in STEPS or {*dilations} != {1}:
            raise Decline(
                f"takes steps across of {STEPS}, of windows whose elements are neighbours"
            )
        if any(pad >= taps for pad, taps in zip(pads, self.taps * 2, strict=True)):
            raise Decline("takes windows that each see something of the image")
        if not all(tensor.num_elements for tensor in (src, weights, dst)):
            raise Decline("an operand has no elements")
        super().__init__(src, weights, dst, pads, follow)

    @property
    def kernel(self) -> str:
        """The kernel's name in plans."""
        return f"direct {self.taps[0]}x{self.taps[1]}"

    def rows(self) -> list[list[Layout]]:
        """Return rows of layouts, each for ``self.tensors``: one row for each layout that dst may
        have, the best row first.
        """
        weights = Layout(f"OIhw{native.load().lanes}o")
        return [self.row_of(CHANNELS_FIRST, weights, dst) for dst in self.image_layouts()]

    def preferred(self, call: Call) -> Mapping[int, Layout]:
        """Return the first of ``rows``, by operand index."""
        return dict(enumerate(self.by_operand(call, self.rows()[0])))

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
        rows = self.rows()
        if layouts not in rows:
            known = " or ".join(" ".join(map(str, row)) for row in rows)
            return f"takes operands in {known}, not {' '.join(map(str, layouts))}"
        return None

    def variants(self, call: Call) -> Iterator[Variant]:
        """Yield a variant for each layout of dst."""
        for row in self.rows():
            forms = forms_on(call.device, self.by_operand(call, row))
            yield Variant(call.library, forms, kernel=self.kernel)

    def __call__(self, *tensors: PTensor) -> None:
        """Emit the call as one step."""
        dst = tensors[-1]
        self.make(
            native.load().direct,
            tensors,
            outputs=dst.size("C"),
            taps=self.taps,
            strides=self.strides,
        )


def convolution(
    src: VTensor,
    weights: VTensor,
    dst: VTensor,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    follow: Sequence[Follower] = (),
) -> ImageRoutine:
    """Return Winograd's convolution, or ``Direct`` if Winograd's declines and src has few channels.

    Args: see ``Convolution`` and ``Direct``.

    Raises:
        Decline: neither takes the convolution.
    """
    arguments = (src, weights, dst, strides, pads, dilations, follow)
    try:
        return Convolution(*arguments)
    except Decline as why:
        if src.size("C") > MAX_CHANNELS:
            raise
        try:
            return Direct(*arguments)
        except Decline as other:
            raise Decline(f"{why}; {other}") from None
