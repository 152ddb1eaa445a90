"""Weights of 2, 4 and 8 bits in blocks: how ONNX nodes store them, and how operators here do.

Here they are u8 with a dim of blocks and a dim of the bytes of a block. The first code of a byte is
in its lowest bits. A scale and a zero belong to each block: a code stands for
(code - zero) * scale. Without a zero it is 2^(bits - 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from libdesc.numpy.arrays import Array
from ops._names import fresh
from vtensor.errors import VTensorError
from vtensor.language.dtype import bits as bits_of
from vtensor.language.dtype import from_numpy
from vtensor.operators import NodeReader, named
from vtensor.tensor import VTensor

#: The numbers of bits of a code, and the fewest codes of a block.
BITS, SMALLEST = (2, 4, 8), 16


class Packed(NamedTuple):
    """Weights as operators here take them.

    Attributes:
        over: the dim along which there are blocks, once codes are numbers.
        depth: its size; codes of the last block beyond it mean nothing.
        block, byte: the dims of blocks, and of the bytes of a block.
        bits: the bits of a code.
        operands: the codes, their scales, and their zeros if there are any.
    """

    over: str
    depth: int
    block: str
    byte: str
    bits: int
    operands: tuple[VTensor, ...]

    @property
    def names(self) -> dict[str, Any]:
        """The parameters that operators on such weights have in common."""
        return {"over": self.over, "block": self.block, "byte": self.byte, "bits": self.bits}


def block_size(node: NodeReader, bits: int) -> int:
    """Return the node's attribute ``block_size``, which must be a power of two.

    ``bits`` are those of a code; both are checked.
    """
    size = int(node.attribute("block_size", 128))
    if bits not in BITS:
        raise node.refuse(f"codes of {bits} bits; to fix: quantize to one of {BITS}")
    if size < SMALLEST or size & (size - 1):
        raise node.refuse(f"block_size {size} is no power of two from {SMALLEST} on")
    return size


def constant(node: NodeReader, index: int) -> Array | None:
    """Return a node's input as an array, or None if it is computed in a run."""
    try:
        return np.asarray(node.constant(index))
    except VTensorError:
        return None


def sized(node: NodeReader, index: int, dims: Mapping[str, int]) -> VTensor:
    """Return a node's input with these dims; its axes may be merged ones."""
    value = node.input(index)
    count = 1
    for size in dims.values():
        count *= size
    if value.num_elements != count:
        expected = " x ".join(f"{dim}={size}" for dim, size in dims.items())
        raise node.refuse(f"input {index} is {value.summary()}; expected {expected}")
    return node.reshape(value, dims)


def unpacked(array: Array, bits: int) -> Array:
    """Return the codes along the last axis of bytes.

    >>> unpacked(np.array([0x21, 0x43], np.uint8), 4).tolist()
    [1, 2, 3, 4]
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = array[..., np.newaxis] >> shifts & np.uint8((1 << bits) - 1)
    return codes.reshape(*array.shape[:-1], array.shape[-1] * len(shifts))


def packed(codes: Array, bits: int, block: int) -> Array:
    """Return codes along the last axis as bytes of blocks: two axes in place of the last.

    >>> packed(np.arange(16, dtype=np.uint8), 4, 16).tolist()
    [[16, 50, 84, 118, 152, 186, 220, 254]]
    """
    *rows, depth = codes.shape
    whole = np.zeros((*rows, -(-depth // block) * block), np.uint8)
    whole[..., :depth] = codes
    parts = whole.reshape(*rows, whole.shape[-1] // block, block * bits // 8, 8 // bits)
    result = parts[..., 0].copy()
    for place in range(1, 8 // bits):
        result |= parts[..., place] << np.uint8(place * bits)
    return result


def unsigned(array: Array) -> tuple[Array, int]:
    """Return integers as codes, and the code of 0."""
    name = from_numpy(array.dtype)
    middle = 1 << bits_of(name) - 1 if name[0] == "s" else 0
    return (array.astype(np.int16) + middle).astype(np.uint8), middle


def along(node: NodeReader, dim: str, depth: int, taken: Sequence[str], size: int) -> Packed:
    """Return the names of weights with blocks along ``dim``, without operands."""
    block, byte = fresh(f"{dim}_block", taken), fresh(f"{dim}_byte", taken)
    return Packed(dim, depth, block, byte, size, ())


def repacked(
    node: NodeReader, x: VTensor, dim: str, indices: tuple[int, int, int]
) -> Packed | None:
    """Return constant integers with blocks along ``dim``, packed.

    None if the integers, their scales or their zero points are computed in a run.

    Args:
        node: the ONNX node, which has a ``block_size``.
        x: the integers, an input of the node.
        dim: the dim of the integers along which there are blocks.
        indices: the inputs of the integers, their scales and their zero points.
    """
    given = [constant(node, index) if node.has(index) else None for index in indices]
    integers, scales, zeros = given
    if integers is None or scales is None or (zeros is None and node.has(indices[2])):
        return None
    bits, axis = bits_of(x.dtype), list(x.dims).index(dim)
    size, depth = block_size(node, bits), x.size(dim)
    blocks = -(-depth // size)
    expected = tuple(blocks if at == axis else n for at, n in enumerate(integers.shape))
    for array in (scales, zeros):
        if array is not None and array.shape != expected:
            raise node.refuse(
                f"scales or zero points of sizes {array.shape}; expected {expected}: "
                f"{blocks} blocks of {size} along {dim}, which has size {depth}"
            )
    rows = [name for name in x.dims if name != dim]
    # Packing needs the codes of a block next to one another. Constants alone are moved, once.
    names = along(node, dim, depth, rows, bits)
    codes, middle = unsigned(np.moveaxis(integers, axis, -1))
    each = [names.block if name == dim else name for name in x.dims]
    own = [
        node.made(packed(codes, bits, size), [*rows, names.block, names.byte]),
        node.made(scales, each),
    ]
    if zeros is not None or middle == 0:
        shifts = np.zeros(expected, np.uint8) if zeros is None else unsigned(zeros)[0]
        own.append(node.made(shifts, each))
    return names._replace(operands=tuple(own))


def read_dequantized(node: NodeReader) -> VTensor | None:
    """Read a DequantizeLinear of constants in blocks as weights that stay packed.

    None for any other node.
    """
    x, size = node.input(0), int(node.attribute("block_size", 0))
    if size < SMALLEST or size & (size - 1) or x.dtype[0] not in "su" or x.dtype[1:] not in "248":
        return None
    scale = node.input(1)
    if scale.ndimensions() != x.ndimensions():
        return None
    if node.element_type("output_dtype") not in ("", scale.dtype):
        return None
    weights = repacked(node, x, node.axis(int(node.attribute("axis", 1)), x), (0, 1, 2))
    if weights is None:
        return None
    op = named("DequantizeBlocks")(depth=weights.depth, **weights.names)
    result: VTensor = node.add(op, *weights.operands)
    return result
