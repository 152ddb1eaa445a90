"""The types of Eigen's extension modules, which have the same kernels, one per instruction set.

There is no module of this name. A test compares this file with the modules' own signatures and
docstrings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Sizes = Sequence[int]

#: A box of memory: index of the source (-1: none, the box is filled), shape, offset and strides in
#: the source, offset and strides in dst, the bits of an element that fills. Offsets and strides are
#: in elements.
Box = tuple[int, Sizes, int, Sizes, int, Sizes, int]
#: A window over images: number of images, of channels, then, each per spatial dim: sizes of src,
#: sizes of dst, sizes of the window, strides, dilations, pads at the beginning.
Window = tuple[int, int, Sizes, Sizes, Sizes, Sizes, Sizes, Sizes]

#: A run of elements: count, offset of the first one in src (-1: they are filled), stride.
Run = tuple[int, int, int]
#: Indexed elements of a tensor. For each index below a shape, a block of contiguous elements: the
#: shape, strides in the indices, strides in the tensor, the indexed axes (size, stride, name),
#: elements of a block, number of indices, number of elements of the tensor.
Places = tuple[Sizes, Sizes, Sizes, Sequence[tuple[int, int, str]], int, int, int]
#: Weighted sums along an axis of src: number of elements before, along and after the axis; for each
#: element of dst, where its summands end in the two lists that follow; index in src and weight of
#: each summand.
Blend = tuple[int, int, int, Sizes, Sizes, Sequence[float]]
#: Number of images, of channels, spatial sizes of src, of dst, number of spatial dims.
Sampled = tuple[int, int, Sizes, Sizes, int]
#: Number of boxes, of images, of channels, height and width of an image, bins of a box down and
#: across, whether a bin is its maximum (else its mean), samples per bin, the most samples, scale of
#: the boxes, whether pixel centres are at a half.
Align = tuple[int, int, int, int, int, int, int, bool, int, int, float, bool]
#: Number of rows, the axis (size, stride, name), number of overwritten indices along the axis,
#: elements per index, number of starts (-1: no starts), whether the axis is circular.
Cache = tuple[int, tuple[int, int, str], int, int, int, bool]
#: Number of groups, of groups of offsets, of channels of dst, of spatial dims; whether there is a
#: mask.
Bends = tuple[int, int, int, int, bool]
#: Number and length of series, parts of a number (2: complex); frames per series, distance between
#: their beginnings, numbers taken for each; length of the transform, number of its results, parts
#: of a result; whether it is inverse, mirrored, windowed.
Frames = tuple[int, int, int, int, int, int, int, int, int, bool, bool, bool]

#: Cell, direction, length of the sequences, batch, number of features, of units, the activations of
#: each direction (name, alpha, beta), clip, whether clip applies, whether an LSTM's input and
#: forget gates are coupled.
Network = tuple[str, str, int, int, int, int, Sequence[tuple[str, float, float]], float, bool, bool]

class Kernel(Protocol):
    """A kernel as a step."""

    @property
    def kernel(self) -> str:
        """The kernel's name."""

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch memory, the step's last slot; 0 if it needs none."""

    def __vtensor_step__(self) -> object:
        """Return a capsule with a step of native/include/vtensor/step.h."""

class Kernels(Protocol):
    """Kernels on Eigen, compiled for one instruction set."""

    level: str
    version: str

    def machine_level(self) -> str:
        """
        Return the best of the modules that this machine runs: baseline, avx2 or avx512.
        """

    def pointwise(
        self,
        shape: Sizes,
        strides: Sequence[Sizes],
        types: Sequence[str],
        constants: Sequence[tuple[str, int | float]],
        program: Sequence[tuple[str, Sizes]],
        pads: Sequence[Box],
    ) -> Kernel:
        """
        An element-wise program; arguments: the operands, then dst, which is dense.

        Strides count elements, 0 where an operand is repeated. Types are the operands', then
        dst's. Values are numbered: operands, constants (type, value), then what each instruction
        (function, values) gives; the last one is stored. The boxes of ``pads``, as for copy, are
        filled last.
        """

    def joined(
        self,
        shape: Sizes,
        strides: Sequence[Sizes],
        types: Sequence[str],
        constants: Sequence[tuple[str, int | float]],
        program: Sequence[tuple[str, Sizes]],
        pads: Sequence[Box],
        pieces: Sizes,
    ) -> Kernel:
        """
        Element-wise program whose first operand has dst's layout, in pieces: an argument each.

        Of each row of it, each of the ``pieces`` has so many elements.
        """

    def copy(self, sizes: Sizes, boxes: Sequence[Box], item_bytes: int) -> Kernel:
        """
        Boxes of elements from sources to dst; arguments: the sources, then dst.

        A box is (source, shape, from, from_strides, to, to_strides, bits); source -1 fills with
        bits. Elements have 1, 2, 4 or 8 bytes, whatever they mean.
        """

    def product(
        self,
        element: str,
        batch: Sizes,
        left_strides: Sizes,
        right_strides: Sizes,
        rows: int,
        columns: int,
        depth: int,
    ) -> Kernel:
        """Products of row-major matrices of f32 or s32; arguments left, right, dst."""

    def dynamic_quantize(self, size: int, pads: Sequence[Box]) -> Kernel:
        """
        Steps of u8 of the scale that just holds every value; arguments src, dst, scale, zero.

        The boxes of ``pads``, as for copy, are filled last.
        """

    def convolution(self, element: str, window: Window, groups: int, outputs: int) -> Kernel:
        """
        Convolution of f32 or s32, channels last; arguments src, weights (G d h w I O), dst,
        scratch.

        A window is (images, channels, src, dst, kernel, strides, dilations, begin); three spatial
        dims.
        """

    def depthwise(self, element: str, window: Window, multiplier: int) -> Kernel:
        """
        Convolution of each channel by itself; arguments src, weights (d h w C M), dst.
        """

    def pooling(self, kind: str, window: Window, end: Sizes, power: float) -> Kernel:
        """Pooling, channels last; arguments src, dst."""

    def largest_place(self, window: Window, column_major: bool) -> Kernel:
        """
        The largest of each window, and its place in an image of the order N C D H W.

        Channels last; arguments src, dst, indices (s64).
        """

    def reduction(
        self,
        kind: str,
        element: str,
        src: int,
        dst: int,
        kept: Sequence[Box],
        reduced: Sequence[Box],
        pads: Sequence[Box],
    ) -> Kernel:
        """
        A reduction of src elements to dst elements of a type; arguments src, dst.

        ``kind``: "sum", "mean", "prod", "max", "min", "l1", "l2", "sum_square", "log_sum" or
        "log_sum_exp". Boxes are as for copy. Each element of a box of ``kept`` in dst is the
        reduction of src there and at the offsets of all boxes of ``reduced``; those of ``pads`` are
        filled last.
        """

    def normalization(
        self,
        kind: str,
        element: str,
        parameter_type: str,
        shape: Sizes,
        first: int,
        last: int,
        parameters: Sequence[Sizes],
        epsilon: float,
    ) -> Kernel:
        """
        (src - mean) * factor * scale + shift over the axes first to last - 1.

        ``kind``: "layer", "rms", "mean_variance", "l1" or "l2". ``parameters``: strides in elements
        along shape of src and dst, which are dense if axes lie behind the reduced ones, of the
        scale and of the shift, as far as there are any. Arguments src, parameters, dst, and of
        "layer" the mean and the factor.
        """

    def softmax(self, rows: int, length: int) -> Kernel:
        """Softmax of each row; arguments src, dst."""

    def col2im(self, dtype: str, window: Window) -> Kernel:
        """
        Windows added up, each at its place in an image; arguments src (images taps places), dst.
        """

    def deformed(self, window: Window, bends: Bends) -> Kernel:
        """
        Convolution whose windows take elements from places beside their own.

        Bends are (groups, parts, outputs, rank, masked). Arguments src (N C D H W), weights
        (O I d h w), offset (N parts d h w rank D H W), mask (N parts d h w D H W) if there is one,
        dst, scratch.
        """

    def fourier(self, dtype: str, frames: Frames) -> Kernel:
        """
        Discrete Fourier transforms of frames; arguments src, a window if there is one, dst,
        scratch.

        Frames are (series, size, src_parts, frames, step, taken, length, bins, dst_parts, inverse,
        mirrored, windowed): of each series of so many numbers so many frames, of which so many
        numbers are taken and zeros follow. Mirrored: the second half of what is transformed mirrors
        the first.
        """

    def determinant(self, dtype: str, matrices: int, rows: int) -> Kernel:
        """Determinants of square matrices; arguments src, dst, scratch."""

    def recurrent(self, network: Network, given: Sequence[str], length_bytes: int) -> Kernel:
        """
        A network along a sequence; arguments x (T N F), w (dir gate unit F), r (dir gate unit
        state), what is given, by name and in its order, y (T dir N unit), the last states, scratch.

        A network is (cell, direction, times, batch, features, units, functions, clip, limited,
        coupled): a cell is rnn, gru, lbr_gru or lstm; of each direction the functions (name, alpha,
        beta) of its gates.
        """

    def attention(
        self,
        batch: Sizes,
        sizes: tuple[int, int, int, int],
        strides: Sequence[Sizes],
        masks: Sequence[tuple[Sizes, bool]],
        scale: float,
        masked: float,
        zero: bool,
    ) -> Kernel:
        """
        Attention; arguments q, k, v, the masks, y.

        Sizes are (queries, keys, features of q and k, columns of v and y). Strides of q, k, v and y
        go along the batch's axes, then say where each row of a batch begins; those of a mask,
        (strides, whether it is truth values), go along the batch's axes, queries and keys. Where a
        truth mask is false, a score is masked. With zero, a query whose weights are not numbers
        gets 0.
        """

    def lrn(
        self, rows: int, length: int, size: int, alpha: float, beta: float, bias: float
    ) -> Kernel:
        """Local response normalization along each row; arguments src, dst."""

    def pick(
        self, axes: Sequence[Sequence[Run]], src_elements: int, bits: int, item_bytes: int
    ) -> Kernel:
        """
        Elements of src at places that are known before a run; arguments src, dst, which is dense.

        Each axis of dst is a row of runs (count, begin, step): so many elements, each a step
        further on in src; begin -1 fills with bits. What is taken lies at the sum of what all axes
        say.
        """

    def gather(self, places: Places, index_bytes: int, item_bytes: int) -> Kernel:
        """
        Elements of src at places that indices say; arguments src, indices, dst, which is dense.

        Places are (shape, strides, bases, axes, inner, indices, elements): one for each index below
        shape, which begins in src at the sum of index * bases and of what each axis (size, stride,
        name) adds, and has inner elements. The numbers that address, one an axis, begin at the sum
        of index * strides.
        """

    def scatter(self, places: Places, index_bytes: int, dtype: str, reduction: str) -> Kernel:
        """
        src with some elements replaced; arguments src, indices, updates, dst.

        Places are as for gather; reduction is none, add, mul, max or min. The element type has a
        name, or, without a reduction, the number of its bytes.
        """

    def overwrite(self, cache: Cache, item_bytes: int) -> Kernel:
        """
        src with some elements of each row overwritten; arguments src, update, start (s64), dst.

        A cache is (outer, axis, count, inner, starts, circular): outer rows of elements along an
        axis (size, stride, name) of inner each, of which count are overwritten, from the start of
        the row's batch on; without starts (-1) from 0 on, and there is no such argument.
        """

    def unpool(self, layers: int, each: int, counted: Sizes, dst: Sizes, item_bytes: int) -> Kernel:
        """
        Elements at places that indices count in an image, zeros elsewhere.

        Arguments src, indices (s64), dst; counted are the spatial sizes of the image, dst those of
        dst.
        """

    def one_hot(
        self, outer: int, depth: int, inner: int, index_bytes: int, item_bytes: int
    ) -> Kernel:
        """
        One value at each index along the axis in the middle, another elsewhere; arguments
        indices, the pair of values, dst.
        """

    def reverse_sequence(
        self, batch: int, time: int, inner: int, index_bytes: int, item_bytes: int
    ) -> Kernel:
        """The first elements of each sequence in reverse; arguments src, lengths, dst."""

    def triangle(
        self, matrices: int, rows: int, columns: int, k: int, upper: bool, item_bytes: int
    ) -> Kernel:
        """Elements on one side of a diagonal, and zeros elsewhere; arguments src, dst."""

    def running(
        self,
        dtype: str,
        outer: int,
        length: int,
        inner: int,
        product: bool,
        exclusive: bool,
        reverse: bool,
    ) -> Kernel:
        """Running sums or products along the axis in the middle; arguments src, dst."""

    def extreme_place(
        self, dtype: str, outer: int, length: int, inner: int, largest: bool, last: bool
    ) -> Kernel:
        """Index of the extreme element along the axis in the middle; arguments src, dst (s64)."""

    def hardmax(self, dtype: str, rows: int, length: int) -> Kernel:
        """1 at the first of the largest elements of each row, else 0; arguments src, dst."""

    def top(
        self, dtype: str, outer: int, length: int, inner: int, count: int, largest: bool
    ) -> Kernel:
        """
        So many extreme elements along the axis in the middle, in order, and where they are;
        arguments src, values, indices (s64), scratch.
        """

    def blend(self, dtype: str, axes: Sequence[Blend]) -> Kernel:
        """
        An image at another size, one axis after another; arguments src, dst, scratch.

        An axis is (outer, from, inner, ends, near, weights): the sizes around it and its own in
        src; of each element of dst where its taps end, and of each tap the element of src and what
        it counts.
        """

    def grid_sample(
        self, dtype: str, grid_dtype: str, image: Sampled, mode: str, padding: str, corners: bool
    ) -> Kernel:
        """
        Image sampled at the places of a grid; arguments src (N C D H W), grid (N D H W axis), dst.

        An image is (images, channels, src, dst, rank); three spatial dims, those beyond rank are 1.
        """

    def roi_align(self, dtype: str, box_dtype: str, align: Align, index_bytes: int) -> Kernel:
        """
        Boxes of images at one size; arguments src (N C H W), boxes (R 4), image (R), dst, scratch.

        What is aligned is (boxes, images, channels, height, width, rows, columns, largest, samples,
        most, scale, half_pixel).
        """
