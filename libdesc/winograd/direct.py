"""The routine: a convolution of few channels, which lie one after another.

An image is delivered so; in any other layout, most of each vector would be pads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from libdesc.winograd import native
from libdesc.winograd.routine import CHANNELS_FIRST, Convolution, OfImages
from ptensor.evaluation import Call, Decline, Variant, forms_on
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.errors import LayoutError
from vtensor.language.operators import Follower
from vtensor.language.tensor import VTensor

#: Channels, and elements of a filter, up to which its weights and what it sees stay in the
#: innermost cache; and steps across that there are kernels for.
FEW, TAPS, STEPS = 4, 12, (1, 2, 4)


class Direct(OfImages):
    """A convolution of f32 over two dims, of an image of few channels.

    Args:
        src: N C H W.
        weights: O I h w.
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
        if "G" in weights.dims or src.size("C") > FEW or max(self.taps) > TAPS:
            raise Decline(
                f"takes up to {FEW} channels of one group, {TAPS} elements down and across"
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
        """What runs."""
        return f"direct {self.taps[0]}x{self.taps[1]}"

    def rows(self) -> list[list[Layout]]:
        """The layouts of ``tensors``, the best first: results may lie as those of any other."""
        weights = Layout(f"OIhw{native.load().lanes}o")
        return [self.around(CHANNELS_FIRST, weights, dst) for dst in self.images()]

    def preferred(self, call: Call) -> Mapping[int, Layout]:
        """The first of these."""
        return dict(enumerate(self.named(call, self.rows()[0])))

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """None where all lie as the kernel has them."""
        try:
            own = self.own(call, row)
        except LayoutError as why:
            return str(why)
        rows = self.rows()
        if own not in rows:
            known = " or ".join(" ".join(map(str, one)) for one in rows)
            return f"all lie in {known}, not {' '.join(map(str, own))}"
        return None

    def variants(self, call: Call) -> Iterator[Variant]:
        """Each layout of results."""
        for row in self.rows():
            forms = forms_on(call.device, self.named(call, row))
            yield Variant(call.library, forms, kernel=self.kernel)

    def __call__(self, *tensors: PTensor) -> None:
        """Make the call: one step."""
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
) -> OfImages:
    """A convolution in the forms of its filter; without any, of few channels as they lie.

    Args are those of either.

    Raises:
        Decline: neither takes it.
    """
    given = (src, weights, dst, strides, pads, dilations, follow)
    try:
        return Convolution(*given)
    except Decline as why:
        if src.size("C") > FEW:
            raise
        try:
            return Direct(*given)
        except Decline as other:
            raise Decline(f"{why}; {other}") from None
