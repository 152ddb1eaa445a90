"""VTensors on the memory of NumPy arrays and of other frameworks' tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ptensor.buffer import ArrayStorage
from ptensor.dlpack import array_of
from vtensor.errors import DimError, InputError
from vtensor.language.dims import dim_names
from vtensor.language.dtype import from_numpy
from vtensor.language.tensor import Option, VTensor
from vtensor.storage.inputs import as_array


def from_array(
    array: object, dims: str | Sequence[str], *, name: str = "", copy: bool | None = None
) -> VTensor:
    """Return a VTensor that uses an array's memory, whatever its strides.

    Args:
        array: a NumPy array, or any object with ``__dlpack__`` or ``__array__``.
        dims: the dim names of the array's axes, in order, for instance ``"N C H W"``.
        name: the tensor's name.
        copy: True always copies the array; False never does; None copies it only if its byte order
            is not the machine's.

    Raises:
        InputError: ``array`` is no array, or has to be copied in spite of ``copy=False``.
        DTypeError: VTensor has no such element type.
        DimError: the array has another rank than there are names.

    >>> x = from_array(np.zeros((1, 4, 4, 3), np.float32).transpose(0, 3, 1, 2), "N C H W")
    >>> x.summary(), x.produced_layout
    ('f32 N=1 C=3 H=4 W=4', Layout('NHWC'))
    >>> x.slice(H=(1, 3)).summary()
    'f32 N=1 C=3 H=2 W=4'
    """
    values = as_array(f"array {name!r}" if name else "array", array)
    dtype = from_numpy(values.dtype)
    if not values.dtype.isnative:
        if copy is False:
            raise InputError(f"{values.dtype} is of the other byte order: it has to be copied")
        values, copy = values.astype(values.dtype.newbyteorder("=")), None
    names = dim_names(dims)
    if len(names) != values.ndim:
        raise DimError(
            f"an array of shape {values.shape} does not go by {len(names)} dims: {names}"
        )
    if copy:
        values = np.array(values, order="K", copy=True)
    tensor = VTensor(dtype, dict(zip(names, values.shape, strict=True)), Option(name=name))
    tensor.storage = ArrayStorage(values, tensor.dims)
    return tensor


def from_dlpack(
    tensor: object, dims: str | Sequence[str], *, name: str = "", copy: bool | None = None
) -> VTensor:
    """Return a VTensor that uses the memory of another framework's tensor, which may be bfloat16.

    The VTensor is read-only if the framework says so, or is too old to say (before DLPack 1.0).

    Args:
        tensor: an object with ``__dlpack__`` and ``__dlpack_device__``; it stays alive.
        dims: the dim names of the tensor's axes, in order, for instance ``"N C H W"``.
        name: the VTensor's name.
        copy: True copies, False never does, None leaves it to the other framework.

    Raises:
        DLPackError: ``tensor`` is on another device, gives no capsule, or copies with
            ``copy=False``.
        DTypeError: VTensor has no such element type.
        DimError: ``tensor`` has another rank than there are names.

    >>> x = from_dlpack(np.zeros((2, 3), np.float32), "N C")
    >>> x.summary()
    'f32 N=2 C=3'
    """
    if not hasattr(tensor, "__dlpack__") or not hasattr(tensor, "__dlpack_device__"):
        raise InputError(f"{type(tensor).__name__} has no __dlpack__ and __dlpack_device__")
    return from_array(array_of(tensor, copy=copy), dims, name=name)
