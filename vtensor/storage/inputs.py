"""The arrays that a run takes and writes: checked, and copied only if necessary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ptensor.layout import Layout
from ptensor.parts import Part
from vtensor.errors import DLPackError, InputError, VTensorError
from vtensor.language.dtype import from_numpy, numpy_dtype
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass
from vtensor.language.tensor import VTensor

Array = np.ndarray[Any, Any]

#: Python's built-in types of numbers and of lists of numbers.
PYTHON = (list, tuple, bool, int, float, complex)


@dataclass(frozen=True)
class Port:
    """An input or an output of a network.

    Attributes:
        name: the name of the input or output.
        dtype: element type.
        shape: the size of each axis of the user's array; None for a size that each run decides.
        dims: the dim name of each axis of the user's array.
        any_rank: True if each run decides the rank as well; shape and dims are then empty.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    dims: tuple[str, ...]
    any_rank: bool = False

    def of_rank(self, rank: int) -> Port:
        """Return this port; if ``any_rank`` is True, a port with ``rank`` axes of open sizes
        instead.

        >>> print(Port("x", "f32", (), (), any_rank=True).of_rank(2))
        x : f32 D0=? D1=?
        """
        if not self.any_rank:
            return self
        return Port(
            self.name, self.dtype, (None,) * rank, tuple(f"D{axis}" for axis in range(rank))
        )

    def __str__(self) -> str:
        if self.any_rank:
            return f"{self.name} : {self.dtype} of any rank"
        sizes = " ".join(
            f"{dim}={'?' if size is None else size}"
            for dim, size in zip(self.dims, self.shape, strict=True)
        )
        return f"{self.name} : {self.dtype} {sizes}"


def random_array(port: Port, generator: np.random.Generator) -> Array:
    """Return an array of random numbers with the port's element type and shape.

    A size that is open in the port is 0 in the array. Floats are normally distributed. Integers are
    0 and 1, which are mostly valid indices.
    """
    sizes = tuple(size or 0 for size in port.shape)
    real = "f" in port.dtype
    numbers = generator.standard_normal(sizes) if real else generator.integers(0, 2, sizes)
    return numbers.astype(numpy_dtype(port.dtype))


def noise(ports: Sequence[Port], inputs: Mapping[str, object]) -> dict[str, object]:
    """Return an array for each input by name: the given one, else random numbers of a fixed seed.

    Args:
        ports: the inputs of the network.
        inputs: the given arrays by name of the input.

    Raises:
        InputError: an input that is not given has open sizes, or no input has a name that is given.
    """
    generator, feeds = np.random.default_rng(0), dict(inputs)
    for port in ports:
        if port.name not in feeds:
            if port.any_rank or None in port.shape:
                raise InputError(f"input {port.name!r} has open sizes: give {port}")
            feeds[port.name] = random_array(port, generator)
    check_names(feeds, ports)
    return feeds


def calibration(calibrate: Mapping[str, object] | None, ports: Sequence[Port]) -> dict[str, Array]:
    """Return dense copies of the arrays of ``calibrate=``, by name of the input.

    The errors of approximate variants are measured on these arrays.

    Args:
        calibrate: arrays by name of the input; None is no arrays.
        ports: the inputs of the network.

    Raises:
        InputError: no input has a name that is given, or an array has another element type or shape
            than its input.
    """
    if calibrate is not None and not isinstance(calibrate, Mapping):
        raise InputError(
            f"calibrate is given as {{name: array}}, not as {type(calibrate).__name__}"
        )
    known, arrays = {port.name: port for port in ports}, dict[str, Array]()
    for name, array in (calibrate or {}).items():
        if name not in known:
            raise InputError(f"calibrate: no input {name!r}; inputs are {', '.join(known)}")
        try:
            feed = feed_of(array, known[name])
        except InputError as error:
            raise InputError(f"calibrate: {error}") from None
        arrays[name] = np.array(feed.values(feed.dims))
    return arrays


def as_array(label: str, argument: object, *, writable: bool = False) -> Array:
    """Return an argument as a NumPy array, without a copy if possible.

    Args:
        label: the argument's name in errors: ``"input 'x'"``.
        argument: an array, or an object with ``__dlpack__`` or ``__array__``.
        writable: True if the array will be written, so that it must share the argument's memory. An
            object that has only ``__array__``, which may copy without notice, is then refused.

    Raises:
        InputError: the argument is no array or has a mask; or ``writable`` is True and the array
            would be a copy.
    """
    if isinstance(argument, np.ndarray):
        if type(argument) is not np.ndarray and isinstance(argument, np.ma.MaskedArray):
            remedy = "array.data" if writable else "array.filled(value)"
            raise InputError(f"{label}: a masked array was given; to fix: {remedy}")
        return argument
    try:
        if hasattr(argument, "__dlpack__"):
            from ptensor.dlpack import array_of

            return array_of(argument, copy=False if writable else None)
        if hasattr(argument, "__array__") and not writable:
            return np.asarray(argument)
    except DLPackError as error:
        raise InputError(f"{label}: {error}") from error
    except Exception as error:  # the object may raise any kind
        pass_signals(error)
        raise InputError(f"{label}: {type(argument).__name__} gives no array: {error}") from error
    wanted = "__dlpack__" if writable else "__dlpack__ or __array__"
    kind = type(argument).__name__
    raise InputError(f"{label}: {kind} is no array; give a NumPy array or an object with {wanted}")


def converted(numbers: object, port: Port) -> Array:
    """Convert a number of Python, or nested lists of such, to an array of an input's element type.

    Raises:
        InputError: lists are ragged, or an element is no number or does not fit the element type.

    >>> converted([[1, 2.5]], Port("x", "f32", (1, 2), ("N", "C")))
    array([[1. , 2.5]], dtype=float32)
    """
    wrong = f"input {port.name!r}: this {type(numbers).__name__} is no array of {port.dtype}"
    try:
        array = np.asarray(numbers)
    except Exception as error:  # of any kind: elements may be objects of any class
        pass_signals(error)
        raise InputError(f"{wrong}: {error}; wanted is {port}") from error
    real = port.dtype != "bool" and port.dtype[0] in "bcf"
    kinds = "biufc" if port.dtype[0] == "c" else "biuf" if real else "biu"
    if array.size and array.dtype.kind not in kinds:
        raise InputError(f"{wrong}: NumPy makes {array.dtype} of it; wanted is {port}")
    with np.errstate(all="ignore"):
        result = array.astype(numpy_dtype(port.dtype))
    if real:
        fits = np.array_equal(np.isfinite(result), np.isfinite(array))
    else:
        fits = np.array_equal(
            result if result.dtype.kind in kinds else result.astype(np.int64), array
        )
    if not fits:
        raise InputError(f"{wrong}: some elements are out of its range; wanted is {port}")
    return result


def check_names(feeds: Mapping[str, object], ports: Sequence[Port]) -> None:
    """Check that the arrays of a run have exactly the names of the network's inputs.

    Args:
        feeds: the arrays by name.
        ports: the inputs of the network.

    Raises:
        InputError: ``feeds`` is no mapping, or a name is missing or unknown; the message then lists
            the inputs.
    """
    if not isinstance(feeds, Mapping):
        raise InputError(f"inputs are given as {{name: array}}, not as {type(feeds).__name__}")
    known = dict.fromkeys(port.name for port in ports)
    missing = [name for name in known if name not in feeds]
    unknown = [str(name) for name in feeds if name not in known]
    if missing or unknown:
        faults = [f"missing: {', '.join(missing)}"] * bool(missing)
        faults += [f"unknown: {', '.join(unknown)}"] * bool(unknown)
        listed = "\n".join(f"  {port}" for port in ports) or "  none"
        raise InputError(f"inputs {'; '.join(faults)}. This network's inputs are\n{listed}")


def check_array(array: Array, port: Port) -> Array:
    """Return an array in native byte order, after checking its shape and element type.

    Raises:
        InputError: the rank, a size or the element type is not the port's.
    """
    check_kind(array.shape, array.dtype, port)
    array = np.asarray(array)  # a subclass may change what indexing and copies mean
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def check_kind(shape: tuple[int, ...], dtype: np.dtype[Any], port: Port) -> None:
    """Check that a shape and an element type are those of a port.

    Raises:
        InputError: the rank, a size or the element type is not the port's.
    """
    sizes = port.of_rank(len(shape)).shape
    if len(shape) != len(sizes):
        raise InputError(
            f"input {port.name!r}: rank {len(shape)} was given (shape {shape}), wanted is {port}"
        )
    if any(want not in (None, size) for size, want in zip(shape, sizes, strict=True)):
        raise InputError(f"input {port.name!r}: shape {shape} was given, wanted is {port}")
    try:
        element_type = from_numpy(dtype)
    except VTensorError as error:
        raise InputError(f"input {port.name!r}: {error}; wanted is {port}") from None
    if element_type != port.dtype:
        raise InputError(
            f"input {port.name!r}: element type {element_type} was given, wanted is {port}; "
            f"to fix: array.astype({numpy_dtype(port.dtype).name!r})"
        )


@dataclass(frozen=True)
class Feed:
    """An input of a run.

    Attributes:
        part: the elements, contiguous in memory, and their layout.
        given: the caller's array, from which ``part`` was made, as a view or a copy.
        dims: the dim names, in the order of the port.
        elements: returns the elements that the caller's memory has at that time, with an axis for
            each dim.
    """

    part: Part
    given: Array
    dims: tuple[str, ...]
    elements: Callable[[], Array]

    @property
    def copied(self) -> bool:
        """True if ``part`` is a copy of the caller's memory."""
        return self.given.size > 0 and not np.may_share_memory(self.part.array, self.given)

    def values(self, dims: Sequence[str]) -> Array:
        """Return the elements as an array whose axes are these dims, in this order."""
        return self.part.logical(dims)


def feed_of(value: object, port: Port) -> Feed:
    """Return an input of a run; if the caller's array is dense, it stays in place, else it is
    copied.

    A copy has its axes in the order of the port's dims. If ``value`` is a VTensor whose dims have
    the port's names, they may be in any order. Under other names, they must be in the port's order.

    Args:
        value: a VTensor, an array, an object that ``as_array`` takes, or numbers in nested lists.
        port: the input's port.

    Raises:
        InputError: the value is no array, or has another shape or element type than the port.
    """
    if isinstance(value, VTensor):
        port = port.of_rank(value.ndimensions())
        order = port.dims if value.dims.keys() == set(port.dims) else tuple(value.dims)
        check_kind(tuple(map(value.size, order)), numpy_dtype(value.dtype), port)
        elements: Callable[[], Array] = partial(value.numpy, order)
        if (part := dense_part(value)) is not None:
            renamed = part.renamed(dict(zip(order, port.dims, strict=True)))
            return Feed(renamed, part.array, port.dims, elements)
        owner, array = value.data(), elements()
    else:
        if isinstance(value, PYTHON) and not hasattr(value, "__array__"):
            value = converted(value, port)
        owner = as_array(f"input {port.name!r}", value)
        array = check_array(owner, port)
        port = port.of_rank(array.ndim)
        elements = partial(np.asarray, owner)
    layout = layout_of(array, port.dims)
    if layout is None:
        array, layout = np.array(array, order="C"), Layout.plain(port.dims)
    in_place = array.transpose([port.dims.index(dim) for dim in layout.dims])
    part = Part(in_place, layout, dict(zip(port.dims, array.shape, strict=True)))
    return Feed(part, owner, port.dims, elements)


def values_of(value: object, port: Port) -> Array:
    """Return an input of a run as an array with the port's order of dims; it stays in place if its
    memory is dense.

    Args:
        value: as for ``feed_of``.
        port: the input's port.

    Raises:
        InputError: as for ``feed_of``.
    """
    if type(value) is np.ndarray and value.dtype == numpy_dtype(port.dtype):
        flags, sizes = value.flags, value.shape if port.any_rank else port.shape
        fits = [want in (None, size) for want, size in zip(sizes, value.shape, strict=False)]
        if flags.c_contiguous and flags.aligned and len(sizes) == value.ndim and all(fits):
            return value
    feed = feed_of(value, port)
    return feed.values(feed.dims)


def memory_of(value: object, port: Port) -> Feed:
    """Return an input of a run, as ``feed_of`` does, in memory that later runs may read again.

    Args:
        value: a VTensor, an array, or an object whose memory can be shared; numbers in lists have
            none.
        port: the input's port.

    Raises:
        InputError: the value has no memory that can be shared; or, as for ``feed_of``, it has
            another shape or element type than the port.
    """
    if not isinstance(value, VTensor):
        value = as_array(f"input {port.name!r}", value, writable=True)
    return feed_of(value, port)


def dense_part(tensor: VTensor) -> Part | None:
    """Return a view of a tensor's elements, and their layout in the tensor's dims.

    None if the elements have gaps in memory or the layout allows no view.
    """
    part = tensor.part()
    return part if part is not None and part.dense else None


def layout_of(array: Array, dims: Sequence[str]) -> Layout | None:
    """Return the layout of a dense array: the order of its dims in memory.

    None if the array has gaps, overlaps, negative strides, or is not aligned to its elements.

    Args:
        array: the array.
        dims: the dim name of each axis.

    >>> layout_of(np.zeros((1, 4, 4, 3), np.float32).transpose(0, 3, 1, 2), "NCHW")
    Layout('NHWC')
    """
    if not array.flags.aligned:
        return None
    if array.flags.c_contiguous:
        return Layout.plain(dims)
    # axes of size 1 come first: their strides have no meaning, and must not lead to another layout
    order = sorted(
        range(array.ndim), key=lambda axis: (array.shape[axis] != 1, -array.strides[axis])
    )
    if not array.transpose(order).flags.c_contiguous:
        return None
    return Layout.plain([dims[axis] for axis in order])


def check_out(
    out: Mapping[str, object] | None,
    ports: Sequence[Port],
    wanted: Sequence[str],
) -> dict[str, Array]:
    """Return the arrays of ``out=``, to which a run writes its outputs, by name of the output.

    Args:
        out: the arrays by name of the output; None is no arrays.
        ports: the outputs of the network.
        wanted: the names of the outputs that the run delivers.

    Raises:
        InputError: a name is not in ``wanted``, or is there twice; or an array has another element
            type or byte order than the output, is read-only, or overlaps itself or another array.
    """
    if out is None:
        return {}
    if not isinstance(out, Mapping):
        raise InputError(f"out is given as {{name: array}}, not as {type(out).__name__}")
    known = {port.name: port for port in ports}
    arrays: dict[str, Array] = {}
    for name, value in out.items():
        if list(wanted).count(name) != 1:
            listed = ", ".join(wanted) or "none"
            raise InputError(f"out: {name!r} is not one of the outputs wanted, once: {listed}")
        label, port = f"out {name!r}", known[name]
        array = as_array(label, value, writable=True)
        try:
            element_type = from_numpy(array.dtype) if array.dtype.isnative else str(array.dtype)
        except VTensorError as error:
            raise InputError(f"{label}: {error}; wanted is {port}") from None
        if element_type != port.dtype:
            raise InputError(f"{label}: element type {element_type} was given, wanted is {port}")
        if not array.flags.writeable:
            raise InputError(f"{label}: it is read-only")
        if _overlaps_itself(array):
            raise InputError(f"{label}: its elements overlap, so not all of them can be written")
        for other, other_array in arrays.items():
            if np.may_share_memory(array, other_array):
                raise InputError(
                    f"{label}: its memory is that of out {other!r} too: give it its own"
                )
        arrays[name] = array
    return arrays


def check_fits(name: str, array: Array, sizes: Mapping[str, int | None]) -> None:
    """Check that an array has the rank and the known sizes of the output that is written to it.

    Args:
        name: the output's name.
        array: the array of ``out=``.
        sizes: the output's sizes by dim; None for an unknown size.

    Raises:
        InputError: the array has another rank or size than the output.
    """
    known = tuple(sizes.values())
    if len(known) != array.ndim or any(
        want not in (None, have) for want, have in zip(known, array.shape, strict=True)
    ):
        listed = " ".join(f"{dim}={'?' if size is None else size}" for dim, size in sizes.items())
        raise InputError(f"out {name!r}: shape {array.shape} was given, the output has {listed}")


def _overlaps_itself(array: Array) -> bool:
    """Return whether elements of an array may share memory.

    They do not if the stride of each axis is at least as many bytes as all elements along the axes
    with smaller strides span.
    """
    if array.size == 0:
        return False
    reach = array.itemsize
    axes = zip(array.strides, array.shape, strict=True)
    for step, size in sorted((abs(step), size) for step, size in axes if size > 1):
        if step < reach:
            return True
        reach = step * (size - 1) + reach
    return False


def parse_layouts(
    requested: Mapping[str, Layout | str] | None,
    ports: Sequence[Port],
    label: str,
    *,
    any_too: bool = False,
) -> dict[str, Layout]:
    """Return the layouts that a user requests for inputs or outputs, parsed and checked, by name.

    Args:
        requested: the layouts or their texts by name of the input or output; None is no layouts.
        ports: the inputs or outputs that may be named.
        label: the name of the argument ``requested`` in errors.
        any_too: True also accepts the layout ANY.

    Raises:
        InputError: no port has a name that is given; or a layout has an encoding, or other dims
            than its port.
        LayoutError: a text is no layout.
    """
    layouts: dict[str, Layout] = {}
    known = {port.name: port for port in ports}
    if requested is not None and not isinstance(requested, Mapping):
        raise InputError(
            f"{label}={requested!r} is no {{name: layout}}; there are {', '.join(known)}"
        )
    for name, layout in (requested or {}).items():
        if name not in known:
            raise InputError(f"{label}: no {name!r} here; there are {', '.join(known) or 'none'}")
        parsed = Layout(layout).normalized(known[name].dtype)
        if known[name].any_rank and not (parsed.is_any and any_too):
            raise InputError(f"{label}: {name!r} is of any rank, so no layout can be named for it")
        fits = any_too if parsed.is_any else set(parsed.dims) == set(known[name].dims)
        if not fits or parsed.encoding:
            raise InputError(
                f"{label}: {parsed} cannot hold {known[name]}; the layout of an input or output "
                "must be an order of exactly these dims, in its own element type"
            )
        layouts[name] = parsed
    return layouts
