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

#: Decision trees: the numbers of rows, features, trees, nodes, votes and targets, how votes are
#: aggregated, whether all nodes compare by <= and send NaN to the second child.
Forest = tuple[int, int, int, int, int, int, str, bool]
#: Classes: number of base scores, whether all votes are for one of two classes, whether none is
#: negative, whether scores are complements.
Classes = tuple[int, bool, bool, bool]
#: A run of elements: count, offset of the first one in src (-1: they are filled), stride.
Run = tuple[int, int, int]
#: Indexed elements of a tensor. For each index below a shape, a block of contiguous elements: the
#: shape, strides in the indices, strides in the tensor, the indexed axes (size, stride, name),
#: elements of a block, number of indices, number of elements of the tensor.
Places = tuple[Sizes, Sizes, Sizes, Sequence[tuple[int, int, str]], int, int, int]
#: An axis along which each element of dst lies between two of src: src's size; for each element of
#: dst, the indices of these two and their weights.
Between = tuple[int, Sizes, Sizes, Sequence[float], Sequence[float]]
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
    """A kernel, which supplies itself as a step."""

    @property
    def kernel(self) -> str:
        """The kernel's name."""

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch memory, the step's last slot; 0 if it needs none."""

    def __vtensor_step__(self) -> object:
        """Return the kernel's step in a capsule, as native/include/vtensor/step.h defines it."""

class Kernels(Protocol):
    """Kernels on Eigen, compiled for one instruction set."""

    level: str
    version: str

    def machine_level(self) -> str:
        """
        Return the best instruction set, of those with a module, that this machine runs.

        One of "baseline", "avx2" and "avx512".
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
        Make a kernel that runs an element-wise program. Slots: the operands, dst (dense).

        Args:
            strides: of each operand along ``shape``, in elements; 0 repeats.
            types: the element types of the operands, then of dst.
            constants: (element type, value) each.
            program: instructions (function, numbers of its arguments). Values are numbered: the
                operands, the constants, then the result of each instruction. The last result is
                written to dst.
            pads: boxes of dst, as for copy, which are filled last.
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
        Make a kernel as of pointwise, whose first operand is divided among several slots.

        ``pieces``: in each row of that operand, which has dst's order, slot i holds ``pieces[i]``
        elements. These slots come first.
        """

    def copy(self, sizes: Sizes, boxes: Sequence[Box], item_bytes: int) -> Kernel:
        """
        Make a kernel that copies boxes of elements. Slots: the sources, then dst.

        Args:
            sizes: the number of elements of each source, then of dst.
            boxes: (source, shape, from, from_strides, to, to_strides, bits): the index of a
                source, and the box's offset and strides in that source, then in dst, in elements.
                If source is -1, the box of dst is filled with elements of these bits.
            item_bytes: bytes of an element, 1, 2, 4 or 8.
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
        """
        Make a kernel for products of row-major matrices, one per index below ``batch``.

        Each is left (``rows`` x ``depth``) times right (``depth`` x ``columns``). ``element``:
        "f32", or "s32", which wraps around. Strides: from one matrix to the next along the axes
        of ``batch``, in elements. Slots: left, right, dst.
        """

    def dynamic_quantize(self, size: int, pads: Sequence[Box]) -> Kernel:
        """
        Make a kernel that quantizes f32 to u8 by the smallest scale that fits all values and 0.

        ``size``: number of elements; the boxes of ``pads``, as for copy, are filled last.
        Slots: src, dst, scale (f32), zero (u8: the code of 0).
        """

    def convolution(self, element: str, window: Window, groups: int, outputs: int) -> Kernel:
        """
        Make a kernel for a convolution, channels last.

        Args:
            element: "f32", or "s32", which wraps around.
            window: (images, channels, src, dst, kernel, strides, dilations, begin): the sizes of
                src, of dst and of the window, then its strides, dilations and pads at the
                beginning, each along three spatial dims, in elements.
            outputs: channels of dst in each group.

        Slots: src, weights (group, window, channel of src, channel of dst), dst, scratch if needed.
        """

    def depthwise(self, element: str, window: Window, multiplier: int) -> Kernel:
        """
        Make a kernel for a depthwise convolution, channels last.

        ``element``, ``window``: as for convolution. ``multiplier``: channels of dst for each of
        src. Slots: src, weights (window, channel of src, channel of dst), dst.
        """

    def pooling(self, kind: str, window: Window, end: Sizes, power: float) -> Kernel:
        """
        Make a kernel for a pooling of f32, channels last. Slots: src, dst.

        ``kind``: "max", "avg_include_padding", "avg_exclude_padding", or "lp", the norm of
        exponent ``power``. ``window``: as for convolution. ``end``: pads at the end, which a
        mean that includes pads counts.
        """

    def largest_place(self, window: Window, column_major: bool) -> Kernel:
        """
        Make a kernel for a max pooling of f32, channels last, with the index of each maximum.

        Slots: src, dst, indices (s64). An index counts the elements of all images in the order
        N C D H W; with ``column_major``, in the order N C W H D. ``window``: as for
        convolution.
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
        Make a kernel for a reduction over boxes. Slots: src, dst.

        Args:
            kind: "sum", "mean", "prod", "max", "min", "l1", "l2", "sum_square", "log_sum" or
                "log_sum_exp".
            element: the element type.
            src, dst: their numbers of elements.
            kept: boxes, as for copy, of the elements of dst: each is the reduction of the
                elements of src at its offset in src plus each offset of the boxes of ``reduced``.
            reduced: boxes, as for copy, whose offsets in dst are not read.
            pads: boxes of dst, as for copy, which are filled last.
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
        Make a kernel for a normalization over the axes ``first`` to ``last`` - 1.

        dst = (src - mean) * factor * scale + shift.

        Args:
            kind: "layer" (factor 1 / sqrt(variance + epsilon)), "mean_variance" (1 / (standard
                deviation + epsilon)), or, without a mean, "rms" (1 / sqrt(mean square +
                epsilon)), "l1" or "l2" (1 / norm).
            element, parameter_type: the element types of src and dst, and of scale and shift.
            parameters: strides along ``shape``, in elements, of src, dst, scale and shift; the
                last two may be missing. src and dst are dense if axes follow the reduced ones.

        Slots: src, scale, shift, dst, and for "layer" the mean and the factor, of f32.
        """

    def softmax(self, rows: int, length: int) -> Kernel:
        """Make a kernel for softmax of ``rows`` rows of ``length`` f32 numbers. Slots: src, dst."""

    def col2im(self, dtype: str, window: Window) -> Kernel:
        """
        Make a kernel that adds windows up, each at its position in an image.

        ``window``: as for convolution; its src are the sizes of the image, its channels are 1.
        Slots: src (images, elements of a window, windows), dst.
        """

    def deformed(self, window: Window, bends: Bends) -> Kernel:
        """
        Make a kernel for a convolution of f32 that reads src at shifted positions.

        Args:
            window: as for convolution.
            bends: (groups, parts, outputs, rank, masked): the numbers of groups of channels, of
                groups of channels that share offsets, of channels of dst and of spatial dims;
                whether there is a mask.

        Slots: src (N C D H W), weights (O I d h w), offset (N parts d h w rank D H W, the latter of
        dst), mask (N parts d h w D H W) if masked, dst, scratch.
        """

    def fourier(self, dtype: str, frames: Frames) -> Kernel:
        """
        Make a kernel for discrete Fourier transforms of frames.

        Args:
            dtype: the element type.
            frames: (series, size, src_parts, frames, distance, taken, length, bins, dst_parts,
                inverse, mirrored, windowed). src holds ``series`` series of ``size`` numbers of
                ``src_parts`` parts (1: real, 2: complex). A series has ``frames`` frames, which
                begin ``distance`` numbers apart. A transform takes ``taken`` numbers of a frame,
                times the window if windowed, then zeros up to ``length``; if mirrored, the
                conjugates in reverse order as the second half. dst gets its first ``bins``
                results, of ``dst_parts`` parts.

        Slots: src, window if windowed, dst, scratch.
        """

    def determinant(self, dtype: str, matrices: int, rows: int) -> Kernel:
        """
        Make a kernel for determinants of ``matrices`` square matrices of ``rows`` rows.

        Slots: src, dst, scratch.
        """

    def forest(self, dtype: str, to: str, forest: Forest) -> Kernel:
        """
        Make a kernel that aggregates the votes of decision trees per target.

        Args:
            dtype, to: the element types of x and of dst.
            forest: (rows, features, trees, nodes, votes, targets, aggregate, plain). aggregate:
                "SUM", "AVERAGE", "MIN" or "MAX"; plain: each node compares by <=, and NaN goes to
                its second child.

        A node has the words 16 * feature + 2 * mode + 1 if NaN goes to the first child; first and
        second child, which come after it; threshold. A leaf has -1, its first vote, the number of
        its votes, 0.

        Slots: x, nodes (s32), roots, targets, weights, base, dst.
        """

    def tree_classifier(self, dtype: str, forest: Forest, classes: Classes) -> Kernel:
        """
        Make a kernel for a classifier that consists of decision trees.

        Args:
            dtype: the element type of x.
            forest: as for forest; its targets are the classes.
            classes: (bases, binary, positive, complement). bases: the number of base scores;
                binary: all votes are for one of two classes; positive: no vote is negative;
                complement: if the second class has no votes, the first one's score is 1 - s, not
                -s.

        Slots: x, nodes (s32), roots, targets, weights, base, labels (s64; of the classes, then the
        negative and the positive label unless binary), label, scores (f32).
        """

    def lookup(self, dtype: str, item_bytes: int, elements: int, keys: int) -> Kernel:
        """
        Make a kernel that replaces each element by the value of its key.

        Args:
            dtype: the element type of src and keys.
            item_bytes: bytes of an element of values and dst.
            elements, keys: how many there are.

        Slots: src, keys (ascending, NaN last), values (one more: that of all others), dst.
        """

    def pair_probabilities(self, rows: int, classes: int) -> Kernel:
        """
        Make a kernel for probabilities of classes from those of pairs of classes, in f32.

        Slots: src (rows, pairs; of the first class of each), dst (rows, classes).
        """

    def recurrent(self, network: Network, given: Sequence[str], length_bytes: int) -> Kernel:
        """
        Make a kernel for a layer of a recurrent network of f32.

        Args:
            network: (cell, direction, times, batch, features, units, activations, clip, limited,
                coupled). Cell: "rnn", "gru", "lbr_gru" or "lstm"; direction: "forward", "reverse"
                or "bidirectional"; activations: (name, alpha, beta) for the gates of each
                direction; limited: whether their inputs are cut to -clip .. clip; coupled:
                whether an LSTM's input and forget gates are coupled.
            given: the names of optional inputs, in order: "bias", "lengths", "hidden", "cell" or
                "peepholes".
            length_bytes: bytes of an element of lengths, 4 or 8.

        Slots: x (T N F), w (dir gate unit F), r (dir gate unit state), the optional inputs, y (T
        dir N unit), the last hidden state, an LSTM's last cell state, scratch.
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
        Make a kernel for attention: softmax(scale * q * k^T, masked) * v.

        Args:
            batch: the sizes of the axes before queries or keys.
            sizes: (queries, keys, columns of q and k, columns of v and dst).
            strides: of q, k, v and dst, in elements: along the axes of batch, then the offset of
                each row within its batch.
            masks: (strides along the axes of batch, queries and keys; whether it holds truth
                values) each. A score becomes ``masked`` where a truth mask is false; other masks
                are added.
            zero: whether a query whose weights are NaN gets 0.

        Slots: q, k, v, the masks, dst.
        """

    def lrn(
        self, rows: int, length: int, size: int, alpha: float, beta: float, bias: float
    ) -> Kernel:
        """
        Make a kernel for local response normalization of rows of f32. Slots: src, dst.

        dst = src / (bias + alpha / size * sum of squares of ``size`` neighbours) ** beta.
        """

    def pick(
        self, axes: Sequence[Sequence[Run]], src_elements: int, bits: int, item_bytes: int
    ) -> Kernel:
        """
        Make a kernel that copies elements at fixed positions of src. Slots: src, dst (dense).

        Args:
            axes: for each axis of dst, runs (count, begin, stride): the next ``count`` indices
                have the offsets begin, begin + stride, ... in src; begin -1: they are filled. An
                element's offset in src is the sum of its axes' offsets.
            bits: the bits of an element that fills.
        """

    def gather(self, places: Places, index_bytes: int, item_bytes: int) -> Kernel:
        """
        Make a kernel that copies elements at indexed positions of src.

        Args:
            places: (shape, strides, bases, axes, inner, indices, elements). For each point below
                shape, ``inner`` contiguous elements are copied. They begin in src at the sum of
                point * bases, plus, for each of axes (size, stride, name), index * stride. The
                indices of a point, one for each of axes, are contiguous in the slot indices from
                the sum of point * strides on. ``indices``, ``elements``: the numbers of elements
                of the slots indices and src.
            index_bytes, item_bytes: bytes of an index and of an element.

        Slots: src, indices, dst (dense).
        """

    def scatter(self, places: Places, index_bytes: int, dtype: str, reduction: str) -> Kernel:
        """
        Make a kernel that copies src and writes updates at indexed positions.

        ``places``: as for gather. ``reduction``: "none" replaces; "add", "mul", "max" or "min"
        combines the former element and the update. ``dtype``: the element type, or, for "none",
        the bytes of an element ("1", "2", "4" or "8"). Slots: src, indices, updates, dst.
        """

    def overwrite(self, cache: Cache, item_bytes: int) -> Kernel:
        """
        Make a kernel that copies src and overwrites some elements of each row.

        Args:
            cache: (outer, axis, count, inner, starts, circular). There are ``outer`` rows along an
                axis (size, stride, name), with ``inner`` elements for each index. In each row
                ``count`` indices are overwritten, from the start of its batch on. ``starts``: the
                number of batches, or -1: all start at 0. circular: index 0 follows the last.

        Slots: src, update, start (s64; none if starts is -1), dst.
        """

    def unpool(self, layers: int, each: int, counted: Sizes, dst: Sizes, item_bytes: int) -> Kernel:
        """
        Make a kernel for MaxUnpool: zeros, with the elements of src at indexed positions.

        Args:
            layers: the number of images times channels.
            each: elements of src in a layer.
            counted: the spatial sizes of the image, of all layers, whose elements an index
                counts; an index outside of it is skipped.
            dst: the spatial sizes of dst, at least as large.

        Slots: src, indices (s64), dst.
        """

    def one_hot(
        self, outer: int, depth: int, inner: int, index_bytes: int, item_bytes: int
    ) -> Kernel:
        """
        Make a kernel that writes one of two values: values[1] at each index, else values[0].

        Indices count along the middle axis of dst. Slots: indices (outer inner), values (2),
        dst (outer depth inner).
        """

    def reverse_sequence(
        self, batch: int, time: int, inner: int, index_bytes: int, item_bytes: int
    ) -> Kernel:
        """
        Make a kernel that reverses the first elements of each sequence.

        Slots: src (batch time inner), lengths (batch: how many are reversed), dst.
        """

    def triangle(
        self, matrices: int, rows: int, columns: int, k: int, upper: bool, item_bytes: int
    ) -> Kernel:
        """
        Make a kernel that copies one side of diagonal ``k`` (column = row + k) of matrices.

        ``upper``: elements on and above the diagonal are copied, else those on and below it;
        the others become 0. Slots: src, dst.
        """

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
        """
        Make a kernel for running sums along the middle axis of (outer length inner).

        ``product``: products instead; ``exclusive``: without an element itself; ``reverse``:
        from the end. Slots: src, dst.
        """

    def extreme_place(
        self, dtype: str, outer: int, length: int, inner: int, largest: bool, last: bool
    ) -> Kernel:
        """
        Make a kernel for the index of the extreme element along the middle axis.

        src is (outer length inner). ``largest``: the largest element, else the smallest;
        ``last``: of equal elements the last counts, else the first. Slots: src, dst (s64).
        """

    def hardmax(self, dtype: str, rows: int, length: int) -> Kernel:
        """Make a kernel for 1 at the first largest element of each row, else 0. Slots: src, dst."""

    def top(
        self, dtype: str, outer: int, length: int, inner: int, count: int, largest: bool
    ) -> Kernel:
        """
        Make a kernel for ``count`` extreme elements along the middle axis, in order.

        src is (outer length inner). ``largest``: the largest elements, else the smallest.
        Slots: src, values, indices (s64; along that axis), scratch.
        """

    def nonzero(self, dtype: str, shape: Sequence[int]) -> Kernel:
        """
        Make a kernel for the indices of the elements that are not 0, in row-major order.

        Zeros follow what is found. Slots: src, indices (s64; rank, elements), count (s64).
        """

    def select(
        self, outer: int, length: int, inner: int, conditions: int, item_bytes: int
    ) -> Kernel:
        """
        Make a kernel that takes the slices for which a condition is true.

        Slices are along the middle axis of (outer length inner); zeros follow them. A slice
        without a condition is not taken. Slots: src, condition (bool), dst, count (s64).
        """

    def unique(
        self, dtype: str, outer: int, length: int, inner: int, alone: bool, ascending: bool
    ) -> Kernel:
        """
        Make a kernel for the distinct slices along the middle axis of (outer length inner).

        Zeros follow what is found.

        Args:
            alone: whether slices are single elements, so that NaN equals NaN.
            ascending: whether slices ascend; else they are in the order of first occurrence.

        Slots: src, dst, then s64: first occurrences, the index in dst of each slice, numbers of
        occurrences, count; scratch.
        """

    def suppression(
        self,
        images: int,
        classes: int,
        count: int,
        most: int,
        overlap: float,
        score: float,
        centered: bool,
    ) -> Kernel:
        """
        Make a kernel for the boxes of the highest scores that overlap little, in f32.

        Args:
            count: the number of boxes of an image.
            most: the most chosen boxes of an image and class.
            overlap: the most that a chosen box has with another: intersection by union.
            score: a box is left out unless its score is larger.
            centered: whether a box is x and y of its centre, width and height; else it is y and x
                of two corners.

        Slots: boxes (images, count, 4), scores (images, classes, count), indices (s64: image,
        class and box; zeros follow), count (s64).
        """

    def blend(self, dtype: str, axes: Sequence[Blend]) -> Kernel:
        """
        Make a kernel for weighted sums along one axis of an image after another.

        ``axes``: (outer, from, inner, ends, near, weights) each: the number of elements before,
        along and after the axis in src; for each element of dst, the end of its summands in near
        and weights; the index in src of each summand, and its weight. Slots: src, dst, and
        scratch if there are several axes.
        """

    def bilinear(
        self, dtype: str, outer: int, rows: Between, columns: Between, inner: int
    ) -> Kernel:
        """
        Make a kernel that resamples an image linearly along two neighbouring axes at once.

        Args:
            outer, inner: the number of elements before and after the axes.
            rows, columns: (from, below, above, low, high) each: src's size; for each element of dst
                two elements of src, and their weights.

        Slots: src, dst.
        """

    def grid_sample(
        self, dtype: str, grid_dtype: str, image: Sampled, mode: str, padding: str, corners: bool
    ) -> Kernel:
        """
        Make a kernel that samples images at the positions in a grid, from -1 to 1 in each dim.

        Args:
            image: (images, channels, src, dst, rank): the sizes of three spatial dims of src and
                dst, 1 but for the last ``rank``.
            mode: "nearest", "linear" or "cubic".
            padding: "zeros", "border" or "reflection".
            corners: whether -1 and 1 are the centres of the outer elements, else their outer
                edges.

        Slots: src (N C D H W), grid (N D H W axis), dst.
        """

    def roi_align(self, dtype: str, box_dtype: str, align: Align, index_bytes: int) -> Kernel:
        """
        Make a kernel that resamples boxes of images to one size.

        Args:
            align: (boxes, images, channels, height, width, rows, columns, largest, samples, most,
                scale, half_pixel). A box has rows x columns bins; each is the largest, else the
                mean, of its samples. ``samples``: per bin and dim (0: as many as it spans);
                ``most``: the most samples along a box; ``scale``: factor of the boxes' corners;
                half_pixel: whether pixel centres are at a half.
            index_bytes: bytes of an element of image, the index of a box's image.

        Slots: src (N C H W), boxes (R 4), image (R), dst, scratch.
        """
