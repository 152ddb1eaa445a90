"""ONNX's tensors as NumPy arrays, without a copy if the bytes are contiguous."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from optimizer.constants.originals import Original
from vtensor.errors import BudgetError, DTypeError, ModelError
from vtensor.frontends.arrays import from_array
from vtensor.frontends.files.external import DataFiles
from vtensor.language.dtype import bits, from_numpy, numpy_dtype
from vtensor.language.process.interrupts import MALFORMED, pass_signals
from vtensor.language.tensor import VTensor
from vtensor.storage.budget import REMEDY
from vtensor.storage.open_file import LATER, Bytes, Data

Array = NDArray[np.generic]
#: Sizes of a tensor; an unknown one is None.
Sizes = tuple[int | None, ...]


#: Element types whose raw data has the format of NumPy's memory, by ONNX's number.
_RAW_DTYPES: dict[int, np.dtype[np.generic]] = {
    helper.np_dtype_to_tensor_dtype(np.dtype(kind)): np.dtype(kind) for kind in "?bBhHiIqQefd"
}


def tensor_array(
    tensor: TensorProto, files: DataFiles | None, data: NDArray[np.uint8] | None = None
) -> Array:
    """Return the values of a tensor; external data is copied out of its file.

    Args:
        tensor: a tensor of a model's initializers or attributes.
        files: files of external data; None for a model from memory without a root.
        data: the tensor's raw data, if it was separated from the tensor; else None.

    Raises:
        ModelError: its data is absent, too short or too long, or in a file that must not be read.
        BudgetError: with this tensor, the data read from ``files`` would exceed its ``max_bytes``.
    """
    with _named(tensor):
        shape = _shape(tensor)
        if tensor.data_location == TensorProto.EXTERNAL:
            return _external(tensor, shape, files)
        return numpy_helper.to_array(tensor) if data is None else _raw(tensor, shape, data)


def take_in(tensor: TensorProto, files: DataFiles | None) -> None:
    """Read a tensor's external data into the tensor itself.

    Args:
        tensor: a tensor with external data.
        files: files of external data; None for a model from memory without a root.

    Raises:
        ModelError: its data is absent, too short or too long, or in a file that must not be read.
        BudgetError: with this tensor, the data read from ``files`` would exceed its ``max_bytes``.
    """
    with _named(tensor):
        tensor.raw_data = _external_data(tensor, _shape(tensor), files).tobytes()
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")


@contextmanager
def _named(tensor: TensorProto) -> Iterator[None]:
    """Put a tensor's name into the errors that are raised inside the block."""
    what = f"tensor {tensor.name!r}"
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{what}: {error}") from error.__cause__
    except BudgetError as error:
        raise BudgetError(f"{what}: {error}") from None
    except MemoryError:
        raise
    except Exception as error:  # any error of ONNX's reader at malformed bytes
        pass_signals(error)
        raise ModelError(f"{what} cannot be read: {error}") from error


def _shape(tensor: TensorProto) -> tuple[int, ...]:
    """Return the shape of a tensor; raise ModelError for a negative size."""
    shape = tuple(tensor.dims)
    if any(size < 0 for size in shape):
        raise ModelError(f"it has a negative size: {shape}")
    return shape


def sparse_array(sparse: SparseTensorProto, files: DataFiles | None, max_bytes: int) -> Array:
    """Return the values of a sparse tensor as a dense array, zero where it has no value.

    Args:
        sparse: a tensor of a model's initializers or attributes.
        files: files of external data; None for a model from memory without a root.
        max_bytes: limit of the dense array, in bytes.

    Raises:
        ModelError: values, indices and sizes do not fit together, or cannot be read.
        BudgetError: the dense array is larger than ``max_bytes``.

    Source: ONNX IR, SparseTensorProto.
    """
    what, dims = f"sparse tensor {sparse.values.name!r}", tuple(sparse.dims)
    check_rank(len(dims), what)
    if min(dims, default=0) < 0:
        raise ModelError(f"{what}: it has a negative size: {dims}")
    dtype = numpy_dtype(element_type(sparse.values.data_type, what))
    if (nbytes := prod(size or 1 for size in dims) * dtype.itemsize) > max_bytes:
        raise BudgetError(
            f"{what} of sizes {dims} takes {nbytes} bytes as a dense one, and {max_bytes} are left "
            f"of the budget\n  to fix: {REMEDY}"
        )
    values = tensor_array(sparse.values, files)
    count = len(values) if values.ndim == 1 else -1
    if count < 0:
        raise ModelError(f"{what}: its values have the sizes {values.shape}, not (NNZ,)")
    dense = np.zeros(dims, dtype)
    dense.reshape(-1)[_linear(sparse, files, what, count)] = values
    dense.flags.writeable = False
    return dense


def _linear(
    sparse: SparseTensorProto, files: DataFiles | None, what: str, count: int
) -> NDArray[np.int64]:
    """Return, for each value of a sparse tensor, its index in the flattened dense tensor (C order).

    Args:
        sparse: the sparse tensor.
        files: files of external data; None for a model from memory without a root.
        what: name of the tensor in errors.
        count: number of values that the sparse tensor holds.

    Raises:
        ModelError: an index is out of range, or the indices do not ascend.
    """
    dims = tuple(sparse.dims)
    if not count and not sparse.HasField("indices"):
        return np.zeros(0, np.int64)
    if sparse.indices.data_type != TensorProto.INT64:
        raise ModelError(f"{what}: its indices are no int64")
    indices = tensor_array(sparse.indices, files)
    if indices.shape not in ((count,), (count, len(dims))):
        raise ModelError(
            f"{what}: its indices have the sizes {indices.shape}, not ({count},) or "
            f"({count}, {len(dims)})"
        )
    sizes = dims if indices.ndim == 2 else (prod(dims),)
    rows = np.asarray(indices, np.int64).reshape(count, len(sizes))
    if (rows < 0).any() or (rows >= np.array(sizes, np.int64)).any():
        raise ModelError(f"{what}: an index is outside of {dims}")
    linear = rows @ np.array([prod(sizes[axis + 1 :]) for axis in range(len(sizes))], np.int64)
    if (np.diff(linear) <= 0).any():
        raise ModelError(f"{what}: its indices do not ascend, or one is there twice")
    return linear


def _raw(tensor: TensorProto, shape: tuple[int, ...], data: NDArray[np.uint8]) -> Array:
    """Return the array of a tensor whose raw data is ``data``, in the memory of ``data``.

    If NumPy itself lacks the element type, or ``data`` has the wrong size, ONNX's own function
    reads the
    tensor: it makes a copy or raises an error.
    """
    if (dtype := _plain(tensor, shape, data.nbytes)) is not None:
        return data.view(dtype).reshape(shape)
    complete = TensorProto()
    complete.CopyFrom(tensor)
    complete.raw_data = data.tobytes()
    return numpy_helper.to_array(complete)


def known_origin(name: str, tensor: TensorProto, have: Mapping[str, Original]) -> Original | None:
    """Return the array of value ``name`` that an earlier read of the model has deferred.

    None if there is none with the shape and element type of ``tensor``.

    Args:
        name: name of the value; the tensor of a ``Constant`` node has none itself.
        tensor: its shape and type.
        have: the deferred arrays of the earlier read, by the value's name.
    """
    origin = have.get(name)
    if origin is None or origin.shape != tuple(tensor.dims):
        return None
    return origin if helper.np_dtype_to_tensor_dtype(origin.dtype) == tensor.data_type else None


def tensor_origin(
    tensor: TensorProto, files: DataFiles | None, data: Data | None
) -> Array | Original:
    """Return a tensor's array, or an ``Original`` that reads the values on demand.

    Args:
        tensor: a tensor of a model's initializers or attributes.
        files: files of external data; None for a model from memory without a root.
        data: the tensor's raw data, if it was separated from the tensor; else None.

    Raises:
        ModelError: its data is absent, too short or too long, or in a file that must not be read.
        BudgetError: with this tensor, the data read from ``files`` would exceed its ``max_bytes``.
    """
    late = _deferred(tensor, files, data)
    return late or tensor_array(tensor, files, data.now() if data else None)


def _deferred(tensor: TensorProto, files: DataFiles | None, data: Data | None) -> Original | None:
    """Return an ``Original`` that reads a tensor's values on demand, or None if they must be read
    now.

    If anything is wrong with the tensor, the result is None; ``tensor_array`` then reports the
    fault.
    """
    shape = tuple(tensor.dims)
    if min(shape, default=0) < 0:
        return None
    if tensor.data_location == TensorProto.EXTERNAL:
        try:
            return None if files is None else _external_later(tensor, shape, files)
        except MALFORMED as why:
            pass_signals(why)
            return None
    if data is None or data.bytes is not None:
        return None
    dtype = _plain(tensor, shape, data.nbytes)
    return dtype and Original.deferred(shape, dtype, data.reader)


def place_of(tensor: TensorProto, nbytes: int) -> tuple[str, int, int] | None:
    """Return (file, offset, ``nbytes``) of a tensor's external data; None if it has no external
    data.

    ``nbytes`` is the size of the data; offset and size are in bytes.
    """
    if tensor.data_location != TensorProto.EXTERNAL:
        return None
    entries = {entry.key: entry.value for entry in tensor.external_data}
    return entries.get("location", ""), int(entries.get("offset", 0)), nbytes


def _external_later(
    tensor: TensorProto, shape: tuple[int, ...], files: DataFiles
) -> Original | None:
    """Return an ``Original`` that reads a tensor's external data on demand.

    None if the data must be read now: it is small, NumPy itself lacks its element type, its size
    does not fit the tensor's shape, or too many files are open.
    """
    dtype = _RAW_DTYPES.get(tensor.data_type)
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if dtype is None:
        return None
    location, offset = entries.get("location", ""), int(entries.get("offset", 0))
    nbytes = prod(shape) * dtype.itemsize
    if nbytes < LATER or int(entries.get("length", nbytes)) != nbytes:
        return None
    place = location, offset, dtype, shape
    if place not in files.shared:
        if (data := files.later(location, offset, nbytes)) is None:
            return None
        original = Original.deferred(shape, dtype, data.reader)
        files.shared[place] = original
    return files.shared[place]


def _plain(tensor: TensorProto, shape: tuple[int, ...], nbytes: int) -> np.dtype[np.generic] | None:
    """Return the NumPy type with which a tensor's raw data, viewed in place, is the tensor's array.

    None if ONNX has to read the data. This is so if NumPy itself lacks the element type, if the
    machine is not little-endian, or if ``nbytes``, the size of the data, does not fit the shape.
    """
    dtype = _RAW_DTYPES.get(tensor.data_type)
    plain = sys.byteorder == "little" and not tensor.HasField("segment")
    fits = plain and dtype is not None and prod(shape) * dtype.itemsize == nbytes
    return dtype if fits else None


def _external(tensor: TensorProto, shape: tuple[int, ...], files: DataFiles | None) -> Array:
    """Return a tensor's external data as an array."""
    data = _external_data(tensor, shape, files)
    name = element_type(tensor.data_type, "its data")
    if bits(name) < 8:  # packed: elements share bytes
        packed = TensorProto(dims=shape, data_type=tensor.data_type, raw_data=data.tobytes())
        return numpy_helper.to_array(packed)
    return np.require(data.view(numpy_dtype(name)).reshape(shape), requirements="A")


def _external_data(tensor: TensorProto, shape: tuple[int, ...], files: DataFiles | None) -> Bytes:
    """Return the bytes of a tensor's external data.

    Raises:
        ModelError: the model has no files, or the tensor declares another length.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if files is None:
        raise ModelError(
            f"its data is in the file {location!r}, but the model came from memory; load it by its "
            "path, or give the folder of its files as external_data_root="
        )
    nbytes = -(-prod(shape) * bits(element_type(tensor.data_type, "its data")) // 8)
    length = int(entries.get("length", nbytes))
    if length != nbytes:
        raise ModelError(f"{nbytes} bytes are needed, and it declares {length}")
    return files.read(location, int(entries.get("offset", 0)), nbytes)


def element_type(elem_type: int, what: str) -> str:
    """Return VTensor's name of an ONNX element type; ``what`` names the tensor in errors.

    Raises:
        ModelError: VTensor has no such type (strings, ...).
    """
    try:
        return from_numpy(np.dtype(helper.tensor_dtype_to_np_dtype(elem_type)))
    except (DTypeError, KeyError):
        names = {number: name for name, number in TensorProto.DataType.items()}
        kind = names.get(elem_type, str(elem_type)).lower()
        raise ModelError(f"{what}: element type {kind} is not supported") from None


def type_of_array(array: Array | Original) -> onnx.TypeProto:
    """Return the ONNX type of an array."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_type_proto(kind, array.shape)


#: Largest number of dims of a tensor: NumPy's limit.
MAX_RANK = 64


def check_rank(rank: int, what: str) -> None:
    """Check that a tensor has no more dims than NumPy can hold; ``what`` names the tensor in
    errors.

    Raises:
        ModelError: the tensor has more dims.
    """
    if rank > MAX_RANK:
        raise ModelError(f"{what} has {rank} dims; {MAX_RANK} are the most")


def sizes_of(kind: onnx.TypeProto | None) -> Sizes | None:
    """Return the sizes of a tensor type, None for each unknown one.

    None instead of a tuple if the type is unknown, has no rank, or is not that of a tensor.
    """
    if kind is None or not kind.HasField("tensor_type"):
        return None
    if not kind.tensor_type.HasField("shape"):
        return None
    return tuple(
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None
        for dim in kind.tensor_type.shape.dim
    )


def from_proto(
    tensor: TensorProto, dims: str | Sequence[str], *, folder: Path | None = None, name: str = ""
) -> VTensor:
    """Return a VTensor of an ONNX tensor's values; it shares the tensor's bytes if they are
    contiguous.

    Args:
        tensor: an ONNX tensor with its data raw, in a typed field, or in a file.
        dims: the dim names of the tensor's axes, in order, for instance ``"O I h w"``.
        folder: folder of external data files; None if there are none.
        name: the VTensor's name; by default the ONNX tensor's.

    Raises:
        ModelError: its data is absent, too short or too long, or outside the folder.
        DTypeError: VTensor has no such element type.
        DimError: the tensor has another rank than there are names.

    >>> from_proto(numpy_helper.from_array(np.zeros((2, 3), np.float32)), "N C").summary()
    'f32 N=2 C=3'
    """
    if not isinstance(tensor, TensorProto):
        raise ModelError(f"{type(tensor).__name__} is no onnx.TensorProto")
    array = tensor_array(tensor, None if folder is None else DataFiles(folder))
    sizes = tuple(tensor.dims)
    if array.shape != sizes:
        raise ModelError(f"tensor {tensor.name!r}: shape {array.shape} was read, {sizes} declared")
    return from_array(array, dims, name=name or tensor.name)
