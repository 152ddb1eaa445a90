"""What each of the extension modules is: the same kernels, compiled once an instruction set.

No module of this name is there: it is for types. A test compares it with what the modules say of
themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Sizes = Sequence[int]

#: Source (-1: none), shape, where it begins there, strides there, where in dst, strides, and the
#: bits that fill it where there is no source.
Box = tuple[int, Sizes, int, Sizes, int, Sizes, int]
#: Images, channels, then per spatial dim: src, dst, kernel, strides, dilations, pads at the begin.
Window = tuple[int, int, Sizes, Sizes, Sizes, Sizes, Sizes, Sizes]

class Kernel(Protocol):
    """A kernel as a step."""

    @property
    def kernel(self) -> str:
        """Its name."""

    @property
    def scratch_bytes(self) -> int:
        """Its last slot is scratch, if any."""

    def __vtensor_step__(self) -> object:
        """A capsule with a step of native/include/vtensor/step.h."""

class Kernels(Protocol):
    """Kernels on Eigen, compiled for one instruction set."""

    level: str
    version: str

    def machine_level(self) -> str:
        """
        The best of the modules that this machine runs: baseline, avx2 or avx512.
        """

    def pointwise(
        self,
        shape: Sizes,
        strides: Sequence[Sizes],
        types: Sequence[str],
        constants: Sequence[tuple[str, float]],
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

    def copy(self, sizes: Sizes, boxes: Sequence[Box], item_bytes: int) -> Kernel:
        """
        Boxes of elements from sources to dst; arguments: the sources, then dst.

        A box is (source, shape, from, from_strides, to, to_strides, bits); source -1 fills with
        bits. Elements have 1, 2, 4 or 8 bytes, whatever they mean.
        """

    def product(
        self,
        batch: Sizes,
        left_strides: Sizes,
        right_strides: Sizes,
        rows: int,
        columns: int,
        depth: int,
    ) -> Kernel:
        """Products of row-major matrices; arguments left, right, dst."""

    def convolution(self, window: Window, groups: int, outputs: int) -> Kernel:
        """
        Convolution, channels last; arguments src, weights (G d h w I O), dst, scratch.

        A window is (images, channels, src, dst, kernel, strides, dilations, begin); three spatial
        dims.
        """

    def depthwise(self, window: Window, multiplier: int) -> Kernel:
        """
        Convolution of each channel by itself; arguments src, weights (d h w C M), dst.
        """

    def pooling(self, kind: str, window: Window, end: Sizes) -> Kernel:
        """Pooling, channels last; arguments src, dst."""

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
        (src - mean) * factor * scale + shift over the axes first to last - 1 of a dense src.

        ``kind``: "layer", "rms", "mean_variance", "l1" or "l2". ``parameters``: strides in elements
        of the scale and the shift, as far as there are any. Arguments src, parameters, dst, and of
        "layer" the mean and the factor.
        """

    def softmax(self, rows: int, length: int) -> Kernel:
        """Softmax of each row; arguments src, dst."""

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

        Sizes are (queries, keys, features of q and k, columns of v and y). Strides of q, k, v and
        y go along the batch's axes, then from row to row; those of a mask, (strides, whether it is
        truth values), along the batch's axes, queries and keys. Where a truth mask is false, a
        score is masked. With zero, a query whose weights are not numbers gets 0.
        """

    def lrn(
        self, rows: int, length: int, size: int, alpha: float, beta: float, bias: float
    ) -> Kernel:
        """Local response normalization along each row; arguments src, dst."""
