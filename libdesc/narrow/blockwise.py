"""Routines on weights of 2, 4 or 8 bits in blocks, which stay packed in memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from libdesc.narrow import native
from libdesc.patterns import OTHER, X, binary
from libdesc.routine import Routine
from ptensor.evaluation import Decline, emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.operators import Follower, info_of
from vtensor.language.tensor import VTensor


class BlockProduct(Routine):
    """A product of f32 with packed weights; it fuses one sum with a number per output.

    Args:
        tensors: x, codes, scales, zeros if there are any, and y.
        orders: their layouts: x has the dim that is summed over last; codes have blocks and bytes
            last, scales and zeros blocks; y has x's other dims, then those of the outputs.
        bits: the bits of a code.
        rounded: whether x is rounded to 8 bits first, by a scale for each row and block.
        follow: the fused followers.

    Raises:
        Decline: it cannot fuse a follower.
    """

    heavy = True

    def __init__(
        self,
        tensors: Sequence[VTensor],
        orders: Sequence[Layout],
        bits: int,
        rounded: bool,
        follow: Sequence[Follower] = (),
    ) -> None:
        *inputs, dst = tensors
        self.bits, self.rounded, self.zeros = bits, rounded, len(inputs) > 3
        self.outputs = [dim for dim in inputs[2].dims if dim in dst.dims]
        self.bias = bool(follow)
        for follower in follow[:1]:
            self._check(follower, dst)
        if follow[1:]:
            raise Decline("fuses one sum")
        bias = [follower.operands[0] for follower in follow]
        own = [Layout.plain(self.outputs)] * len(bias)
        super().__init__([*inputs, *bias, dst], [*orders[:-1], *own, orders[-1]], follow)

    def _check(self, follower: Follower, dst: VTensor) -> None:
        """Check that a follower, the only one, adds a number per output.

        Raises:
            Decline: the follower cannot be fused.
        """
        does = follower.expression(X, [OTHER] * len(follower.operands))
        if does is not None and len(follower.operands) == 1 and binary(does) == "add":
            [bias] = follower.operands
            sizes = {dim: dst.size(dim) for dim in self.outputs}
            if dict(bias.dims) == sizes and bias.dtype == "f32":
                return
        raise Decline(f"cannot fuse {info_of(follower.op).name} here")

    def __call__(self, *tensors: PTensor) -> None:
        """Emit the call as one step."""
        x, codes, scales, *more, dst = tensors
        [byte] = codes.dims.keys() - scales.dims.keys()
        outputs = prod(map(dst.size, self.outputs))
        rows = prod(n for dim, n in dst.dims.items() if dim not in self.outputs)
        [over] = x.dims.keys() - dst.dims.keys()
        kernel = native.load().block_product(
            rows=rows,
            depth=x.size(over),
            outputs=outputs,
            bits=self.bits,
            block=codes.size(byte) * 8 // self.bits,
            zero_bytes=ITEMSIZE[more[0].dtype] if self.zeros else 0,
            bias=self.bias,
            rounded=self.rounded,
        )
        emit(kernel, [*tensors, *([kernel.scratch_bytes] if kernel.scratch_bytes else [])])


class BlockRows(Routine):
    """Numbers that packed weights stand for: all of them, or rows that indices choose.

    Args:
        tensors: indices if there are any, codes, scales, zeros if there are any, and y.
        orders: their layouts: codes have blocks and bytes last, scales and zeros blocks; with
            indices, the dim into which they point first. y has the indices' dims, the others of the
            codes, and the dim of numbers in blocks.
        bits: the bits of a code.
        depth: y's size along its last dim.
        indexed: whether there are indices.
        checked: whether an index outside is an InputError; else it makes zeros.
    """

    def __init__(
        self,
        tensors: Sequence[VTensor],
        orders: Sequence[Layout],
        bits: int,
        depth: int,
        indexed: bool = False,
        checked: bool = False,
    ) -> None:
        super().__init__(tensors, orders)
        self.bits, self.depth, self.indexed, self.checked = bits, depth, indexed, checked

    def __call__(self, *tensors: PTensor) -> None:
        """Emit the call as one step."""
        indices = tensors[: self.indexed]
        codes, scales, *zeros, dst = tensors[len(indices) :]
        [byte] = codes.dims.keys() - scales.dims.keys()
        axis, *lines = map(scales.size, scales.required_layout.dims[:-1])
        kernel = native.load().block_rows(
            depth=self.depth,
            outputs=axis * prod(lines),
            bits=self.bits,
            block=codes.size(byte) * 8 // self.bits,
            zero_bytes=ITEMSIZE[zeros[0].dtype] if zeros else 0,
            count=prod(indices[0].dims.values()) if indices else axis,
            lines=prod(lines),
            index_bytes=ITEMSIZE[indices[0].dtype] if indices else 0,
            checked=self.checked,
        )
        emit(kernel, [codes, scales, *zeros, *indices, dst])
