"""Values outside of a session: arrays on the processor, as ONNX Runtime wraps them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vtensor.onnxruntime.errors import missing
from vtensor.onnxruntime.metadata import ELEMENTS, element_number

Array = np.ndarray[Any, Any]

#: Devices that ONNX Runtime knows, with its numbers.
_DEVICES = {"cpu": 0, "cuda": 1, "gpu": 1, "dml": 1, "webgpu": 1, "npu": 2, "cann": 3}

_NO_DEVICE = (
    "Can't allocate memory on the device using this package of OnnxRuntime: VTensor has the "
    "processor only. Please use the appropriate package of OnnxRuntime for your hardware to use "
    "this feature."
)


def numpy_type(element: object) -> np.dtype[Any]:
    """Return NumPy's type of elements that are given by ONNX's number or as NumPy knows them.

    Raises:
        RuntimeError: there is no such type.
    """
    try:
        if not isinstance(element, int):
            return np.dtype(element)  # type: ignore[call-overload, no-any-return]  # any object
        from onnx.helper import tensor_dtype_to_np_dtype

        return np.dtype(tensor_dtype_to_np_dtype(element))
    except Exception as error:  # NumPy's and ONNX's are of several kinds
        raise RuntimeError(f"{element!r} is no element type: {error}") from None


def array_at(address: int, element: object, shape: Sequence[int]) -> Array:
    """Return an array over memory that a program owns, without a copy.

    Args:
        address: the address of the first element; the program answers for it.
        element: the element type, by ONNX's number or as NumPy knows it.
        shape: the sizes.

    Raises:
        RuntimeError: the element type or a size is wrong, or the address is 0.
    """
    dtype, sizes = numpy_type(element), [int(size) for size in shape]
    nbytes = dtype.itemsize * math.prod(sizes)
    if min(sizes, default=0) < 0 or (not address and nbytes):
        raise RuntimeError(f"no array of shape {sizes} can be at address {address!r}")
    if not nbytes:
        return np.empty(sizes, dtype)
    memory = (ctypes.c_byte * nbytes).from_address(int(address))
    return np.frombuffer(memoryview(memory), dtype).reshape(sizes)


def check_device(device_type: str) -> None:
    """Check that memory can be had on a device.

    Raises:
        RuntimeError: the device is not the processor.
    """
    if OrtDevice.make(device_type, 0).device_type():
        raise RuntimeError(_NO_DEVICE)


class OrtDevice:
    """A device, by ONNX Runtime's number. VTensor runs on the processor alone."""

    def __init__(self, device_type: int, device_id: int) -> None:
        self._type, self._id = device_type, device_id

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:  # noqa: ARG004
        """Return the device of a name.

        Raises:
            Exception: there is no such device; ONNX Runtime raises no other class.
        """
        if ort_device_name not in _DEVICES:
            raise Exception(f"Unsupported device type: {ort_device_name}")
        return OrtDevice(_DEVICES[ort_device_name], device_id)

    def device_type(self) -> int:
        """Return the number of the kind of device; 0 is the processor."""
        return self._type

    def device_id(self) -> int:
        """Return the number of the device among those of its kind."""
        return self._id


class OrtValue:
    """An array on the processor that runs read or write in place."""

    def __init__(self, array: Array) -> None:
        if not isinstance(array, np.ndarray):
            raise ValueError(
                f"an OrtValue holds an array, not a {type(array).__name__}; "
                "to fix: OrtValue.ortvalue_from_numpy(array)"
            )
        self._array = array

    def __getattr__(self, name: str) -> Any:
        if name == "_ortvalue":  # programs pass it on
            return self
        raise missing("OrtValue", name)

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Array, device_type: str = "cpu", *_: int, **__: int
    ) -> OrtValue:
        """Return a value in the memory of an array; of an array with gaps, in that of a copy.

        Args:
            numpy_obj: the array.
            device_type: the processor.
            _, __: numbers of the device and its vendor, which mean nothing here.

        Raises:
            RuntimeError: the device is not the processor.
        """
        check_device(device_type.lower())
        return cls(np.asarray(numpy_obj, order="C"))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, onnx_element_type: int) -> OrtValue:
        """Return a value in the memory of an array whose bits are read as another element type.

        Raises:
            RuntimeError: the types have different widths, or there is no such type.
        """
        wanted = numpy_type(onnx_element_type)
        if wanted.itemsize != data.dtype.itemsize:
            raise RuntimeError(f"elements of {data.dtype} are no elements of {wanted}")
        return cls(np.asarray(data, order="C").view(wanted))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: object,
        device_type: str = "cpu",
        *_: int,
        **__: int,
    ) -> OrtValue:
        """Return a value of a shape and an element type, whose elements are not set.

        Args:
            shape: the sizes.
            element_type: the element type, by ONNX's number or as NumPy knows it.
            device_type, _, __: as for ``ortvalue_from_numpy``.

        Raises:
            RuntimeError: the device is not the processor, or there is no such type.
        """
        check_device(device_type.lower())
        return cls(np.empty([int(size) for size in shape], numpy_type(element_type)))

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """Return a value in the memory of an object with ``__dlpack__``."""
        return cls(np.from_dlpack(data))

    def numpy(self) -> Array:
        """Return the array; it shares the value's memory."""
        return self._array

    def shape(self) -> list[int]:
        """Return the sizes."""
        return [*self._array.shape]

    def data_type(self) -> str:
        """Return the type as ONNX Runtime writes it: ``tensor(float)``."""
        return f"tensor({ELEMENTS[self.element_type()]})"

    def element_type(self) -> int:
        """Return ONNX's number of the element type."""
        return element_number(self._array.dtype)

    def device_name(self) -> str:
        """Return the name of the device."""
        return "cpu"

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return self._array.ctypes.data

    def tensor_size_in_bytes(self) -> int:
        """Return the number of bytes of all elements."""
        return self._array.nbytes

    def has_value(self) -> bool:
        """Return True: a value of VTensor is never an empty optional."""
        return True

    def is_tensor(self) -> bool:
        """Return True: VTensor has no other values."""
        return True

    def is_sparse_tensor(self) -> bool:
        """Return False."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Return False."""
        return False

    def update_inplace(self, data: Array | OrtValue) -> None:
        """Write the elements of an array, or of another value, to this value's memory.

        Raises:
            TypeError: ``data`` is neither.
            RuntimeError: it has another shape or element type, or the memory is read-only.
        """
        array = data.numpy() if isinstance(data, OrtValue) else data
        if not isinstance(array, np.ndarray):
            raise TypeError("data must be a numpy.ndarray or an OrtValue.")
        own = self._array
        if (array.shape, array.dtype) != (own.shape, own.dtype) or not own.flags.writeable:
            raise RuntimeError(
                "The input size of numpy arrays does not match the size of the OrtValue: "
                f"{array.shape} {array.dtype} was given, it is {own.shape} {own.dtype}, "
                f"{'writable' if own.flags.writeable else 'read-only'}"
            )
        own[...] = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype=dtype, copy=copy)

    def __dlpack__(self, *, stream: object = None, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def _get_c_value(self) -> OrtValue:
        return self
