"""The routine of Winograd convolutions, in one of the tile sizes that the filter allows.

F(m, r) along a dim computes m neighbouring results of a filter of r elements at once; these m
results are a *tile*. Transformed weights are an encoding of the weights. So the transform of
weights is a Transform of a constant, which runs once. A filter of one element has the tile F(1, 1)
and needs no transform: pixels are multiplied by weights.

A filter of stride 2 is split into four *phases*. These are filters of half the size and stride 1,
applied to the even and odd rows and columns of the image. Their results are summed before the
inverse transform, by one product of matrices over four times as many elements.
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

#: Block of output channels in the weights: ``kPanel`` in native/winograd/product.h.
PANEL = 32
#: Largest number of multiplications, as a fraction of those of a direct convolution, with which a
#: tile size is used. Tiles that reach over the edge of the image count in full. With more, the
#: transforms take as much time as is saved.
MAX_SHARE = 0.8

#: For which numbers of pixels, and from how many bytes of weights on, this library computes a
#: filter of one element faster than others. With more pixels weights matter less; fewer bytes are
#: in a cache in any library.
SMALL_IMAGES, LARGE_WEIGHTS = range(17, 65), 1 << 17

#: The lengths of filters along one dim for which there are tiles, and those of a phase (one of the
#: four filters into which a square filter of stride 2 is split).
LINE_TAPS, PHASE_TAPS = (3, 7), (3, 4)

CHANNELS_LAST, CHANNELS_FIRST = Layout("NHWC"), Layout("NCHW")
BLOCKED = (Layout("NCHW8c"), Layout("NCHW16c"))


class TileSize(NamedTuple):
    """A tile size in two dims: how many results Winograd's algorithm computes at once, for which
    filter.

    Attributes:
        results: number of results of a tile, down and across.
        taps: number of elements of the filter, down and across.
        step: the filter's stride, in both dims.
    """

    results: tuple[int, int]
    taps: tuple[int, int]
    step: int = 1

    @property
    def phase(self) -> tuple[int, int]:
        """Height and width of a phase, one of the four filters into which a filter of stride 2 is
        split.

        For stride 1 they are those of the filter.
        """
        down, across = (ceil(taps / self.step) for taps in self.taps)
        return down, across

    @property
    def weights(self) -> Layout:
        """The layout in which the transformed weights of a convolution without groups are
        stored.
        """
        return self._weights_layout([("O", 0), ("I", 0), ("O", PANEL)])

    def of_groups(self, width: int, lanes: int) -> Layout:
        """Return the layout in which the transformed weights of a convolution with groups are
        stored.

        Its innermost elements are a vector of output channels, which may belong to several groups.

        Args:
            width: number of channels of a group.
            lanes: number of elements of a vector.
        """
        if width < lanes:
            return self._weights_layout([("G", 0), ("I", 0), ("G", lanes // width), ("O", 0)])
        return self._weights_layout([("G", 0), ("O", 0), ("I", 0), ("O", lanes)])

    def _weights_layout(self, channels: Sequence[tuple[str, int]]) -> Layout:
        pairs = zip("hw", self.results, self.taps, strict=True)
        tile = tuple((dim, count) for dim, count, taps in pairs if taps > 1)
        phases = [("h", self.step), ("w", self.step)] if self.step > 1 else []
        axes = [("h", 0), ("w", 0), *channels[:-1], *phases, channels[-1]]
        return Layout.of_axes(axes, Encoding("f32", tile=tile, step=self.step) if tile else None)

    def share(self, dst: Sequence[int]) -> float:
        """Return the number of multiplications with this tile size, as a fraction of those of a
        direct convolution.

        Args:
            dst: height and width of the result.
        """
        dims = zip(self.results, self.phase, self.taps, dst, strict=True)
        return prod(ceil(n / m) * (m + r - 1) * self.step / (n * taps) for m, r, taps, n in dims)

    def __str__(self) -> str:
        (down, across), (high, wide), step = self
        return f"F({down}x{across},{high}x{wide}{f'/{step}' if step > 1 else ''})"


def tiles(taps: tuple[int, int], step: int = 1) -> list[TileSize]:
    """Return the tile sizes for a filter, the smallest first; empty if there is no kernel.

    Args:
        taps: height and width of the filter: 3x3, 1x1, a line, or a square one of stride 2.
        step: the filter's stride in both dims.

    >>> [str(tile) for tile in tiles((3, 3))], [str(tile) for tile in tiles((1, 7))]
    (['F(2x2,3x3)', 'F(4x4,3x3)', 'F(6x6,3x3)'], ['F(1x2,1x7)', 'F(1x4,1x7)'])
    >>> [str(tile) for tile in tiles((7, 7), 2)]
    ['F(3x3,7x7/2)', 'F(5x5,7x7/2)']
    """
    if step == 2:
        half = ceil(taps[0] / step) if taps[0] == taps[1] else 0
        counts = [count for count, length in FORMS if length == half and half in PHASE_TAPS]
        return [TileSize((count, count), taps, step) for count in counts]
    if taps == (3, 3):
        return [TileSize((count, count), taps) for count, length in FORMS if length == 3]
    if taps == (1, 1):
        return [TileSize((1, 1), taps)]
    if taps.count(1) != 1 or max(taps) not in LINE_TAPS:
        return []
    counts = [count for count, length in FORMS if length == max(taps)]
    return [TileSize((count, 1) if taps[1] == 1 else (1, count), taps) for count in counts]


class ImageRoutine(Routine):
    """The base class of routines that make an image from an image, with fused followers.

    It fuses at most one sum with a bias along C, at most one sum with an operand that has the dims
    and the layout of dst, and after these at most one function that bounds the result.

    Args:
        src, dst: N C H W.
        weights: the filter.
        pads: pads before each spatial dim, then after each, in elements.
        follow: the fused followers.

    Raises:
        Decline: it cannot fuse a follower.
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
        added = [self.added[name] for name in ("bias", "other") if name in self.added]
        super().__init__([src, weights, *added, dst], follow=follow)

    def _take(self, follower: Follower, dst: VTensor) -> None:
        """Fuse one more follower, after those that are fused already.

        Raises:
            Decline: the follower cannot be fused.
        """
        does = follower.expression(X, [OTHER] * len(follower.operands))
        if does is not None and (self.low, self.high) == (-inf, inf):
            if len(follower.operands) == 1 and binary(does) == "add":
                [tensor] = follower.operands
                kinds = {"bias": {"C": dst.size("C")}, "other": dict(dst.dims)}
                for name, dims in kinds.items():
                    if name not in self.added and dict(tensor.dims) == dims:
                        self.added[name] = tensor
                        return
            elif (limits := bounds(does)) is not None and limits.low <= limits.high:
                self.low, self.high = limits
                return
        raise Decline(f"cannot fuse {info_of(follower.op).name} here")

    def image_layouts(self) -> list[Layout]:
        """Return the layouts that images may have, the best first.

        The layout in which src is produced is the first, if there is a kernel for it.
        """
        lanes = native.load().lanes
        layouts = [
            CHANNELS_LAST,
            *(blocked for blocked in BLOCKED if blocked.block("C") % lanes == 0),
        ]
        return sorted(layouts, key=lambda layout: layout != produced(self.tensors[0]))

    def row_of(self, src: Layout, weights: Layout, dst: Layout) -> list[Layout]:
        """Return the layouts of ``self.tensors``, from those of src, weights and dst."""
        added = [Layout("C")] if "bias" in self.added else []
        added += [dst] if "other" in self.added else []
        return [src, weights, *added, dst]

    def by_operand(self, call: Call, row: Sequence[Layout]) -> list[Layout]:
        """Return a layout for each operand of the call, given the layouts of ``self.tensors``.

        Args:
            call: the call.
            row: the layouts of ``self.tensors``, which may be views of the operands.
        """
        by_operand = [Layout.ANY] * len(call.operands)
        for tensor, layout in zip(self.tensors, row, strict=True):
            by_operand[call.index(tensor)] = to_base(layout, tensor)
        return by_operand

    def by_tensor(self, call: Call, row: Sequence[Layout]) -> list[Layout]:
        """Return a layout for each of ``self.tensors``, given those of the call's operands. Tensors
        may be views of operands.

        Args:
            call: the call.
            row: a layout per operand of the call.

        Raises:
            LayoutError: a layout cannot be expressed in a tensor's own dims.
        """
        return [from_base(row[call.index(tensor)], tensor) for tensor in self.tensors]

    def make(
        self, kernel: Callable[..., Kernel], tensors: Sequence[PTensor], **filter_: object
    ) -> None:
        """Emit the call as one step.

        Args:
            kernel: the native function that makes the kernel.
            tensors: the operands, in the order of ``self.tensors``.
            filter_: those arguments of ``kernel`` that describe the filter.
        """
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
    """Return whether this library computes a convolution faster than oneDNN, and as exactly.

    It does so for some filters of one element with large weights, if there are more output channels
    than pixels. The library prefetches the weights, and gives each thread weights of its own if
    they divide evenly.

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


class Convolution(ImageRoutine):
    """A convolution of f32 over two dims by Winograd's algorithm.

    Args:
        src: N C H W.
        weights: O I h w; or G O I h w, if several whole groups fill a vector, or a group fills one
            or several.
        dst: N C H W.
        strides, dilations: one number per spatial dim, all 1; strides may both be 2.
        pads: pads before each spatial dim, then after each, in elements.
        follow: fused followers, see ``ImageRoutine``.

    Raises:
        Decline: there is no kernel for this convolution, no tile size saves enough products, or a
            follower cannot be fused.
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
        candidates = tiles(taps, step)
        self.tiles = [
            tile for tile in candidates if not self.inexact or tile.share(size) <= MAX_SHARE
        ]
        if not self.tiles:
            raise Decline(f"no form saves products for {taps[0]}x{taps[1]} on {size[0]}x{size[1]}")
        self.step = step
        self.groups = weights.dims.get("G", 1)
        if "G" in weights.dims:
            self._check_groups(weights)
        super().__init__(src, weights, dst, pads, follow)

    def _check_groups(self, weights: VTensor) -> None:
        """Check that there is a kernel for the groups.

        A group must have as many output channels as input channels, and the groups must fill whole
        vectors. Filters must be 3x3, with stride 1.

        Raises:
            Decline: there is no such kernel.
        """
        width, lanes = weights.size("I"), native.load().lanes
        fit = lanes % width == 0 or width % lanes == 0
        if self.groups < 2 or weights.size("O") != width or not fit or self.groups * width % lanes:
            raise Decline(f"takes groups of as many outputs as channels, in vectors of {lanes}")
        if self.step > 1 or self.tiles[0].taps != (3, 3):
            raise Decline("takes groups where filters are 3x3 and their steps 1")

    def weights_layout(self, tile: TileSize) -> Layout:
        """Return the layout of the weights for a tile size."""
        if self.groups == 1:
            return tile.weights
        return tile.of_groups(self.tensors[1].size("I"), native.load().lanes)

    def source_layouts(self) -> list[Layout]:
        """Return the layouts that src may have, the best first.

        A filter of stride 2 needs channels without blocks.
        """
        if self.step == 1:
            return self.image_layouts()
        layouts = [CHANNELS_FIRST, CHANNELS_LAST]
        return sorted(layouts, key=lambda layout: layout != produced(self.tensors[0]))

    def layout_pairs(self) -> list[tuple[Layout, Layout]]:
        """Return pairs of layouts that src and dst may have, the best first."""
        if self.step == 1:
            return [(image, image) for image in self.image_layouts()]
        return [(src, dst) for src in self.source_layouts() for dst in self.image_layouts()]

    def preferred(self, call: Call) -> Mapping[int, Layout]:
        """Return the preferred layouts by operand index: those for the second largest tile size.

        This tile size is almost as fast as the largest one, and has a smaller error.

        Raises:
            Decline: the weights are not constant and would be transformed in each run.
        """
        weights = self.tensors[1]
        if not (weights.base or weights).constant:
            raise Decline("takes weights that are constant")
        src, dst = self.layout_pairs()[0]
        row = self.row_of(src, self.weights_layout(self.tiles[max(len(self.tiles) - 2, 0)]), dst)
        return dict(enumerate(self.by_operand(call, row)))

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """Return None if the library takes these layouts, else the reason why not.

        The layouts must be those of one of the tile sizes. If the results are approximate, the plan
        must have a tolerance above 0.

        Args:
            call: the call.
            row: a layout per operand of the call.
        """
        if self.inexact and not call.evaluation.tolerance:
            return "its results are inexact; the plan's tolerance is 0"
        try:
            src, weights, *added, dst = self.by_tensor(call, row)
        except LayoutError as why:
            return str(why)
        for image, known in ((src, self.source_layouts()), (dst, self.image_layouts())):
            if image not in known:
                return f"takes images in {' or '.join(map(str, known))}, not {image}"
        tile = next(
            (candidate for candidate in self.tiles if self.weights_layout(candidate) == weights),
            None,
        )
        if tile is None:
            smallest = self.weights_layout(self.tiles[0])
            return f"takes weights in {smallest}, or larger tiles, not {weights}"
        expected = self.row_of(src, weights, dst)[2:-1]
        if added != expected:
            wanted, asked = (" ".join(map(str, layouts)) for layouts in (expected, added))
            return f"takes fused operands in {wanted}, not {asked}"
        return None

    def variants(self, call: Call) -> Iterator[Variant]:
        """Yield a variant for each tile size and each pair of layouts of src and dst."""
        for src, dst in self.layout_pairs():
            for tile in self.tiles:
                row = self.row_of(src, self.weights_layout(tile), dst)
                forms = forms_on(call.device, self.by_operand(call, row))
                yield Variant(call.library, forms, kernel=str(tile))

    def __call__(self, *tensors: PTensor) -> None:
        """Emit the call as one step."""
        _, weights, *_, dst = tensors
        tile = next(
            candidate
            for candidate in self.tiles
            if self.weights_layout(candidate) == weights.required_layout
        )
        self.make(
            native.load().convolution,
            tensors,
            outputs=dst.size("C"),
            groups=self.groups,
            taps=tile.phase,
            results=tile.results,
            step=tile.step,
        )
