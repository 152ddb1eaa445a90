"""The routine: a convolution in one of the forms that its filter has.

A form F(m, r) along each dim gives tiles of m results. Its weights are transformed ahead: they lie
in an encoding of their own, so that the transform is a Transform of a constant, made once. A filter
of one element has the form F(1, 1), in which nothing is transformed: pixels times weights.

A filter that steps by 2 is four filters of half the size that step by 1, on the image's even and
odd rows and columns. They are added up before they are transformed back: their products are one,
four times as deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil, inf, prod
from typing import TYPE_CHECKING, NamedTuple

from libdesc.patterns import OTHER, X, binary, bounds
from libdesc.routine import Routine
from libdesc.winograd import native
from ptensor.encoding import Encoding
from ptensor.evaluation import Call, Decline, Variant, emit, forms_on
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from ptensor.views import from_base, produced, to_base
from ptensor.winograd import FORMS
from vtensor.errors import LayoutError
from vtensor.language.operators import Follower, info_of
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.winograd._winograd import Kernel

#: Outputs that lie together in the weights: ``kPanel`` in native/winograd/product.h.
PANEL = 32
#: A form must save so much of the products, tiles that reach over the edge included.
WORTH = 0.8

#: Points of all images with which a filter of one element is faster here than elsewhere, and the
#: bytes of its weights from which on it is: with more points weights count for less, and fewer
#: bytes lie near anyhow.
SMALL_IMAGES, LARGE_WEIGHTS = range(17, 65), 1 << 17

#: Elements of filters with forms: along one dim, and of a square one's half where it steps by 2.
LINES, HALVES = (3, 7), (3, 4)

CHANNELS_LAST, CHANNELS_FIRST = Layout("NHWC"), Layout("NCHW")
BLOCKED = (Layout("NCHW8c"), Layout("NCHW16c"))


class Tile(NamedTuple):
    """A form in two dims: results of a tile, elements of the filter, each down and across.

    The filter's step is of both dims.
    """

    results: tuple[int, int]
    taps: tuple[int, int]
    step: int = 1

    @property
    def phase(self) -> tuple[int, int]:
        """Elements of each of the filters that its step makes of it."""
        down, across = (ceil(taps / self.step) for taps in self.taps)
        return down, across

    @property
    def weights(self) -> Layout:
        """How transformed weights lie."""
        return self._lying([("O", 0), ("I", 0), ("O", PANEL)])

    def of_groups(self, width: int, lanes: int) -> Layout:
        """The same where channels fall into groups of so many: by vectors of outputs."""
        if width < lanes:
            return self._lying([("G", 0), ("I", 0), ("G", lanes // width), ("O", 0)])
        return self._lying([("G", 0), ("O", 0), ("I", 0), ("O", lanes)])

    def _lying(self, channels: Sequence[tuple[str, int]]) -> Layout:
        pairs = zip("hw", self.results, self.taps, strict=True)
        tile = tuple((dim, count) for dim, count, taps in pairs if taps > 1)
        phases = [("h", self.step), ("w", self.step)] if self.step > 1 else []
        axes = [("h", 0), ("w", 0), *channels[:-1], *phases, channels[-1]]
        return Layout.of_axes(axes, Encoding("f32", tile=tile, step=self.step) if tile else None)

    def share(self, dst: Sequence[int]) -> float:
        """The products for an image of so many results, as a part of those of the filter itself."""
        dims = zip(self.results, self.phase, self.taps, dst, strict=True)
        return prod(ceil(n / m) * (m + r - 1) * self.step / (n * taps) for m, r, taps, n in dims)

    def __str__(self) -> str:
        (down, across), (high, wide), step = self
        return f"F({down}x{across},{high}x{wide}{f'/{step}' if step > 1 else ''})"


def tiles(taps: tuple[int, int], step: int = 1) -> list[Tile]:
    """The forms for a filter of 3x3, of one along one dim, of one element, or that steps by 2.

    >>> [str(tile) for tile in tiles((3, 3))], [str(tile) for tile in tiles((1, 7))]
    (['F(2x2,3x3)', 'F(4x4,3x3)', 'F(6x6,3x3)'], ['F(1x2,1x7)', 'F(1x4,1x7)'])
    >>> [str(tile) for tile in tiles((7, 7), 2)]
    ['F(3x3,7x7/2)', 'F(5x5,7x7/2)']
    """
    if step == 2:
        half = ceil(taps[0] / step) if taps[0] == taps[1] else 0
        counts = [count for count, length in FORMS if length == half and half in HALVES]
        return [Tile((count, count), taps, step) for count in counts]
    if taps == (3, 3):
        return [Tile((count, count), taps) for count, length in FORMS if length == 3]
    if taps == (1, 1):
        return [Tile((1, 1), taps)]
    if taps.count(1) != 1 or max(taps) not in LINES:
        return []
    counts = [count for count, length in FORMS if length == max(taps)]
    return [Tile((count, 1) if taps[1] == 1 else (1, count), taps) for count in counts]


class OfImages(Routine):
    """What takes an image and makes one, with what is fused behind it.

    Behind it may be a bias along C and an operand that lies as dst does, each added at most once;
    then at most one function that bounds.

    Args:
        src, dst: N C H W.
        weights: of a filter.
        pads: all beginnings, then all ends.
        follow: what is fused behind it.

    Raises:
        Decline: something else is.
    """

    heavy = True

    def __init__(
        self,
        src: VTensor,
        weights: VTensor,
        dst: VTensor,
        pads: Sequence[int],
        follow: Sequence[Follower],
    ) -> None:
        self.begin = list(pads[:2])
        self.added: dict[str, VTensor] = {}
        self.low, self.high = -inf, inf
        for follower in follow:
            self._take(follower, dst)
        behind = [self.added[name] for name in ("bias", "other") if name in self.added]
        super().__init__([src, weights, *behind, dst], follow=follow)

    def _take(self, follower: Follower, dst: VTensor) -> None:
        """Take what is fused behind it."""
        does = follower.expression(X, [OTHER] * len(follower.operands))
        if does is not None and (self.low, self.high) == (-inf, inf):
            if len(follower.operands) == 1 and binary(does) == "add":
                [tensor] = follower.operands
                kinds = {"bias": {"C": dst.size("C")}, "other": dict(dst.dims)}
                for name, dims in kinds.items():
                    if name not in self.added and dict(tensor.dims) == dims:
                        self.added[name] = tensor
                        return
            elif (found := bounds(does)) is not None and found.low <= found.high:
                self.low, self.high = found
                return
        raise Decline(f"does not take {info_of(follower.op).name} behind it so")

    def images(self) -> list[Layout]:
        """The layouts of images, the best first: the one in which src lies, if it is any."""
        lanes = native.load().lanes
        known = [CHANNELS_LAST, *(one for one in BLOCKED if one.block("C") % lanes == 0)]
        return sorted(known, key=lambda layout: layout != produced(self.tensors[0]))

    def around(self, src: Layout, weights: Layout, dst: Layout) -> list[Layout]:
        """The layouts of ``tensors``, where these are those of the first two and the last."""
        behind = [Layout("C")] if "bias" in self.added else []
        behind += [dst] if "other" in self.added else []
        return [src, weights, *behind, dst]

    def named(self, call: Call, row: Sequence[Layout]) -> list[Layout]:
        """Layouts of ``tensors`` as those of the call's operands."""
        found = [Layout.ANY] * len(call.operands)
        for tensor, layout in zip(self.tensors, row, strict=True):
            found[call.index(tensor)] = to_base(layout, tensor)
        return found

    def own(self, call: Call, row: Sequence[Layout]) -> list[Layout]:
        """Layouts of the call's operands as those of ``tensors``.

        Raises:
            LayoutError: one has no word for it.
        """
        return [from_base(row[call.index(tensor)], tensor) for tensor in self.tensors]

    def make(
        self, kernel: Callable[..., Kernel], tensors: Sequence[PTensor], **filter_: object
    ) -> None:
        """Make the call: one step of a kernel, which is told of its filter besides."""
        src, *_, dst = tensors
        in_planes = src.required_layout == CHANNELS_FIRST
        step = kernel(
            images=src.size("N"),
            channels=src.size("C"),
            src=[src.size("H"), src.size("W")],
            dst=[dst.size("H"), dst.size("W")],
            begin=self.begin,
            src_block=1 if in_planes else sum(src.required_layout.blocks("C")),
            dst_block=sum(dst.required_layout.blocks("C")),
            bias="bias" in self.added,
            other="other" in self.added,
            low=self.low,
            high=self.high,
            **filter_,
        )
        emit(step, [*tensors, *([step.scratch_bytes] if step.scratch_bytes else [])])


def is_faster(strides: Sequence[int], src: VTensor, weights: VTensor) -> bool:
    """Whether a convolution takes less time here than by oneDNN's kernels, and is as exact.

    So it is where a filter of one element has more weights than the image has pixels: the next
    weights are fetched while these are used, and where they can be shared out evenly each thread
    has its own. Measured on Zen 5, with AVX-512 and capped to AVX2: the 7 x 7 images of ResNet-50
    and MobileNet take 0.80 to 0.95 of oneDNN's time in networks, where weights come from far away,
    and 0.95 to 1.03 alone.

    >>> src = VTensor("f32", {"N": 1, "C": 512, "H": 7, "W": 7})
    >>> weights = VTensor("f32", {"O": 2048, "I": 512, "h": 1, "w": 1})
    >>> is_faster((1, 1), src, weights), is_faster((2, 2), src, weights)
    (True, False)
    """
    alone = all(size == 1 for dim, size in weights.dims.items() if dim not in ("O", "I"))
    large = 4 * weights.num_elements >= LARGE_WEIGHTS
    if not (alone and large) or {*strides} != {1} or native.load().lanes < 8:
        return False
    outputs, points = weights.size("O"), src.num_elements // src.size("C")
    few_pads = -outputs % PANEL <= outputs // 16
    return few_pads and points in SMALL_IMAGES and points < outputs


class Convolution(OfImages):
    """A convolution of f32 over two dims, in tiles.

    Args:
        src: N C H W.
        weights: O I h w; G O I h w, where groups fill vectors, several one or one several.
        dst: N C H W.
        strides, dilations: one number a spatial dim, all 1; strides may both be 2.
        pads: all beginnings, then all ends.
        follow: what is fused behind it.

    Raises:
        Decline: it is another convolution, or there is no form that saves products.
    """

    inexact = True

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
        taps, step = (weights.size("h"), weights.size("w")), strides[0]
        alike = {*dilations} == {1} and {*strides} == {step}
        if not alike or step > (1 if taps == (1, 1) else 2):
            raise Decline("takes windows whose steps are 1, or 2 of larger ones")
        if not all(tensor.num_elements for tensor in (src, weights, dst)):
            raise Decline("an operand has no elements")
        size = [dst.size("H"), dst.size("W")]
        self.inexact = taps != (1, 1)
        if not self.inexact and any(pads):
            raise Decline("takes no pads around an image whose pixels it multiplies")
        found = tiles(taps, step)
        self.tiles = [one for one in found if not self.inexact or one.share(size) <= WORTH]
        if not self.tiles:
            raise Decline(f"no form saves products for {taps[0]}x{taps[1]} on {size[0]}x{size[1]}")
        self.step = step
        self.groups = weights.dims.get("G", 1)
        if "G" in weights.dims:
            self._check_groups(weights)
        super().__init__(src, weights, dst, pads, follow)

    def _check_groups(self, weights: VTensor) -> None:
        """Groups have as many outputs as channels, which fill vectors.

        Raises:
            Decline: they do not.
        """
        width, lanes = weights.size("I"), native.load().lanes
        fit = lanes % width == 0 or width % lanes == 0
        if self.groups < 2 or weights.size("O") != width or not fit or self.groups * width % lanes:
            raise Decline(f"takes groups of as many outputs as channels, in vectors of {lanes}")
        if self.step > 1 or self.tiles[0].taps != (3, 3):
            raise Decline("takes groups where filters are 3x3 and their steps 1")

    def laid(self, tile: Tile) -> Layout:
        """How the weights lie in a form."""
        if self.groups == 1:
            return tile.weights
        return tile.of_groups(self.tensors[1].size("I"), native.load().lanes)

    def sources(self) -> list[Layout]:
        """The layouts of src, the best first. Phases are gathered from where channels are few."""
        if self.step == 1:
            return self.images()
        known = [CHANNELS_FIRST, CHANNELS_LAST]
        return sorted(known, key=lambda layout: layout != produced(self.tensors[0]))

    def pairs(self) -> list[tuple[Layout, Layout]]:
        """The layouts of src and dst that are offered, the best first."""
        if self.step == 1:
            return [(image, image) for image in self.images()]
        return [(src, dst) for src in self.sources() for dst in self.images()]

    def preferred(self, call: Call) -> Mapping[int, Layout]:
        """The largest tile but one: that has most of what is to be had at little error.

        Raises:
            Decline: the weights are no constant, which would be transformed at each run.
        """
        weights = self.tensors[1]
        if not (weights.base or weights).constant:
            raise Decline("takes weights that are constant")
        src, dst = self.pairs()[0]
        row = self.around(src, self.laid(self.tiles[max(len(self.tiles) - 2, 0)]), dst)
        return dict(enumerate(self.named(call, row)))

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """None where the layouts are of one form, and the plan may have its error."""
        if self.inexact and not call.evaluation.tolerance:
            return "its results are inexact; the plan's tolerance is 0"
        try:
            src, weights, *behind, dst = self.own(call, row)
        except LayoutError as why:
            return str(why)
        for image, known in ((src, self.sources()), (dst, self.images())):
            if image not in known:
                return f"images lie in {' or '.join(map(str, known))}, not {image}"
        tile = next((one for one in self.tiles if self.laid(one) == weights), None)
        if tile is None:
            return f"weights lie in {self.laid(self.tiles[0])}, or larger tiles, not {weights}"
        expected = self.around(src, weights, dst)[2:-1]
        if behind != expected:
            return f"{' '.join(map(str, behind))} behind it lie in {' '.join(map(str, expected))}"
        return None

    def variants(self, call: Call) -> Iterator[Variant]:
        """Each form, in each layout of images."""
        for src, dst in self.pairs():
            for tile in self.tiles:
                row = self.around(src, self.laid(tile), dst)
                forms = forms_on(call.device, self.named(call, row))
                yield Variant(call.library, forms, kernel=str(tile))

    def __call__(self, *tensors: PTensor) -> None:
        """Make the call: one step."""
        _, weights, *_, dst = tensors
        tile = next(one for one in self.tiles if self.laid(one) == weights.required_layout)
        self.make(
            native.load().convolution,
            tensors,
            outputs=dst.size("C"),
            groups=self.groups,
            taps=tile.phase,
            results=tile.results,
            step=tile.step,
        )
