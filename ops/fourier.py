"""Fourier transforms; complex numbers are pairs along a dim."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from libdesc import Routine, eigen, invoker, rewrite
from libdesc.numpy import definition
from libdesc.numpy.arrays import FLOATS, Array, wide
from ops._names import from_attributes, same_names
from ops._places import one_output
from ops._sliding import Tensor
from ops._windows import in_order
from ptensor import Layout, PTensor
from vtensor.operators import Context, Match, Naming, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    x = node.input(0)
    last = node.constant(2).item() if node.has(2) else -2
    place = node.attribute("axis", 1) if node.opset < 20 else last
    length = int(node.constant(1).item()) if node.has(1) else 0
    derived = {"axis": node.axis(int(place), x), "parts": node.axis(-1, x), "length": length}
    return node.add(from_attributes(node, DFT, **derived), x)


def _has_parts(op: DFT, x: VTensor) -> bool:
    return op.axis != op.parts and x.size(op.parts) in (1, 2)


def _has_elements(op: DFT, x: VTensor) -> bool:
    return op.elements(x) >= 1 <= x.size(op.axis)


@operator(
    "DFT",
    dims={"x": "*", "y": "*"},
    holds=[
        (_has_parts, "{op.parts} must hold one or two parts, and not be transformed"),
        (_has_elements, "there is nothing to transform along {op.axis}"),
    ],
    onnx=Spelling("DFT", 17, _read, same_names),
)
class DFT:
    """Apply the discrete Fourier transform along a dim.

    y[k] = sum over n of x[n] * exp(-2i pi k n / length); the inverse has no minus, and is divided
    by length. A longer x is cut, a shorter one is padded with zeros. If a number is not finite, the
    whole transform is NaN.

    Dims:
        x: axis, parts of size 1 (real) or 2 (real, imaginary), and any others
        y: x's dims; ``axis`` has size ``length``, or ``length // 2 + 1`` if one-sided; ``parts`` 2
    Args:
        axis: the dim that is transformed.
        parts: the dim of the real and imaginary parts.
        length: number of elements transformed; 0 means x's size, for a one-sided inverse
            2 * (x's size - 1).
        inverse: True transforms frequencies back.
        onesided: True keeps only the first length // 2 + 1 frequencies, from which the others
            follow if x is real. The inverse then reads only these, and its result is real (parts of
            size 1).
    Raises:
        DimError: x lacks one of the dims, has other than one or two parts, or has no elements.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 2, "T": 16, "re": 1})
    >>> DFT("T", "re", onesided=True).compute(Context(), x).summary()
    'f32 N=2 T=9 re=2'

    Source: ONNX operator DFT, opset 20.
    """

    axis: str = param(dims_of="x")
    parts: str = param(dims_of="x")
    length: int = param(default=0, minimum=0)
    inverse: bool = param(default=False)
    onesided: bool = param(default=False)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        length = self.elements(x)
        half, back = self.onesided and not self.inverse, self.onesided and self.inverse
        sizes = {self.axis: length // 2 + 1 if half else length, self.parts: 1 if back else 2}
        return one_output(ctx, self, [x], {**x.dims, **sizes})

    def elements(self, x: Tensor) -> int:
        """Return the number of elements that are transformed along ``axis``."""
        size = x.size(self.axis)
        return self.length or (2 * (size - 1) if self.onesided and self.inverse else size)


def _numbers(parts: Array) -> Array:
    """Return numbers from parts along the last axis: complex from two parts, real from one."""
    return np.asarray(parts[..., 0] + 1j * parts[..., 1] if parts.shape[-1] == 2 else parts[..., 0])


def _parts(numbers: Array) -> Array:
    """Return the real and imaginary parts of complex numbers along a new last axis."""
    return np.stack([numbers.real, numbers.imag], axis=-1)


def _nan_unless_finite(parts: Array, numbers: Array) -> Array:
    """Set all results of a transform to NaN if one of its inputs is infinite or NaN.

    Otherwise the algorithm would decide which results are affected.

    Args:
        parts: the results of several transforms, changed in place and returned.
        numbers: the inputs of these transforms, each transform's along the last axis.
    """
    parts[~np.isfinite(numbers).all(axis=-1)] = np.nan
    return parts


def _order(op: DFT, x: VTensor, y: VTensor) -> list[Layout]:
    others = (dim for dim in x.dims if dim not in (op.axis, op.parts))
    return [Layout.plain((*others, op.axis, op.parts))] * 2


#: Inverse transforms of at most this many numbers run on the NumPy library: ONNX's test suite
#: has results near 0 that are rounding errors of NumPy's algorithm.
_SHORT_INVERSE = 16


def _is_not_short_inverse(op: DFT, x: VTensor, y: VTensor) -> bool | str:
    short = op.inverse and not op.onesided and op.elements(x) <= _SHORT_INVERSE
    return (
        not short or f"leaves the way back from {_SHORT_INVERSE} numbers or fewer to the definition"
    )


@invoker("DFT", library="eigen", dtypes=FLOATS, when=_is_not_short_inverse)
def eigen_dft(ctx: Context, op: DFT, x: VTensor, y: VTensor) -> Routine:
    length, size, back = op.elements(x), x.size(op.axis), op.inverse and op.onesided
    series = prod(more for dim, more in x.dims.items() if dim not in (op.axis, op.parts))
    taken = min(size, length // 2 + 1 if back else length)
    of_each = (length, y.size(op.axis), y.size(op.parts), op.inverse, back, False)
    frames = (series, size, x.size(op.parts), 1, 0, taken, *of_each)
    return eigen.fourier([x, y], _order(op, x, y), frames)


@definition("DFT", dtypes=FLOATS, orders=_order)
def dft(ctx: Context, op: DFT, x: PTensor, y: PTensor) -> None:
    length, back = op.elements(x), op.inverse and op.onesided
    numbers = _numbers(wide(x.data()))[..., : length // 2 + 1 if back else length]
    if back:
        values = np.fft.irfft(numbers, length)[..., np.newaxis]
    else:
        transformed = np.fft.ifft(numbers, length) if op.inverse else np.fft.fft(numbers, length)
        values = _parts(transformed[..., : y.size(op.axis)])
    y.data()[...] = _nan_unless_finite(values, numbers)


def _frame_names(node: Naming) -> None:
    node.name("x0", "N T" if node.rank("x0") == 2 else "N T part")
    node.name("x2", "tap")
    node.name("y0", "N frame bin part")


def _read_frames(node: NodeReader) -> VTensor:
    is_real = len(node.input(0).dims) == 2
    x = node.input(0, "N T" if is_real else "N T part")
    if is_real:
        x = node.reshape(x, {**x.dims, "part": 1})
    window = [node.input(2, "tap")] if node.has(2) else []
    if not window and not node.has(3):
        raise node.refuse("neither a window nor frame_length is given")
    length = int(node.constant(3).item()) if node.has(3) else window[0].size("tap")
    op = STFT(int(node.constant(1).item()), length, bool(node.attribute("onesided", 1)))
    return node.add(op, x, *window)


def _has_a_frame(op: STFT, x: VTensor, *window: VTensor) -> bool:
    return x.size("part") in (1, 2) and x.size("T") >= op.length


def _window_fits(op: STFT, x: VTensor, *window: VTensor) -> bool:
    return [dict(w.dims) for w in window] == [{"tap": op.length}][: len(window)]


@operator(
    "STFT",
    dims={"x": "N T part", "window": "tap", "y": "N frame bin part"},
    holds=[
        (_has_a_frame, "part must hold one or two parts, T at least {op.length} elements"),
        (_window_fits, "there may be one window, of {op.length} elements along tap"),
    ],
    onnx=Spelling("STFT", 17, _read_frames, _frame_names),
)
class STFT:
    """Apply the Fourier transform to overlapping frames of a signal.

    y[frame] = DFT(x[frame*step : frame*step + length] * window), NaN if a number is not finite

    Dims:
        x: N T, part of size 1 (real) or 2    window: tap, of size length; if absent, 1
        y: N, as many frames as fit, bin of size length, or length // 2 + 1 if one-sided, part 2
    Args:
        step: distance of the beginnings of neighbouring frames, in elements.
        length: length of a frame, in elements.
        onesided: True keeps only the first length // 2 + 1 frequencies, from which the others
            follow if x is real.
    Raises:
        DimError: a frame is longer than x, the window is not as long as a frame, or x has other
            than one or two parts.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "T": 128, "part": 1})
    >>> STFT(8, 16).compute(Context(), x).summary()
    'f32 N=1 frame=15 bin=9 part=2'

    Source: ONNX operator STFT, opset 17.
    """

    step: int = param(minimum=1)
    length: int = param(minimum=1)
    onesided: bool = param(default=True)

    def compute(self, ctx: Context, x: VTensor, *window: VTensor) -> VTensor:
        bins = self.length // 2 + 1 if self.onesided else self.length
        frames = (x.size("T") - self.length) // self.step + 1
        sizes = {"N": x.size("N"), "frame": frames, "bin": bins, "part": 2}
        return one_output(ctx, self, [x, *window], sizes)


_frame_order = in_order("N T frame bin part tap")


def _one_type(op: STFT, x: VTensor, *others: VTensor) -> bool | str:
    return (
        all(other.dtype == x.dtype for other in others) or "the window is of another element type"
    )


@invoker("STFT", library="eigen", dtypes=FLOATS, when=_one_type)
def eigen_stft(ctx: Context, op: STFT, *tensors: VTensor) -> Routine:
    x, *window, y = tensors
    series = (x.size("N"), x.size("T"), x.size("part"))
    of_each = (op.length, y.size("bin"), 2, False, False, bool(window))
    frames = (*series, y.size("frame"), op.step, op.length, *of_each)
    return eigen.fourier(tensors, [*map(_frame_order, tensors)], frames)


@definition("STFT", dtypes=FLOATS, order=_frame_order)
def stft(ctx: Context, op: STFT, x: PTensor, *rest: PTensor) -> None:
    *windows, y = rest
    frames = sliding_window_view(_numbers(wide(x.data())), op.length, axis=1)[:, :: op.step]
    for window in windows:
        frames = frames * wide(window.data())
    y.data()[...] = _nan_unless_finite(_parts(np.fft.fft(frames)[..., : y.size("bin")]), frames)


#: The longest frames that are transformed by a convolution; for longer ones the fast transform
#: takes less time.
MAX_CONVOLVED_LENGTH = 256


def _waves(match: Match) -> dict[str, object] | None:
    """Return the values that the rule ``frames`` puts into its replacement, by name.

    The rule replaces an STFT by a convolution. ``waves`` are the kernels: cosines and sines of each
    frequency, times the window. None (the rule does not apply) if frames are longer than
    ``MAX_CONVOLVED_LENGTH``, or the output is not f32.
    """
    n, x, y = match["length"], match["x"], match.output
    if n > MAX_CONVOLVED_LENGTH or y.dtype != "f32":
        return None
    turns = np.outer(np.arange(y.size("bin")), np.arange(n)) % n * (2 * np.pi / n)
    real, imaginary = np.cos(turns), -np.sin(turns)
    of_real, of_imaginary = (
        [real, imaginary],
        [-imaginary, real],
    )  # in each, contributions to the real and to the imaginary result
    waves = np.stack([np.stack([*parts], 1) for parts in (of_real, of_imaginary)], 2)
    waves = waves[:, :, : x.size("part")] * match.numbers.get("window", 1.0)
    return {
        "waves": (waves.reshape(-1, x.size("part"), n), ("O", "I", "w")),
        "series": (("N", "N"), ("part", "C"), ("T", "W")),
        "strides": (match["step"],),
        "pairs": tuple((dim, y.size(dim)) for dim in ("N", "bin", "part", "frame")),
    }


rewrite(
    "frames",
    "STFT(x) = x * waves, a convolution with each frequency's waves",
    """
    (STFT(x, constant(window), step=step, length=length, onesided=_)
    | STFT(x, step=step, length=length, onesided=_))
    """,
    "Reshape(Conv1D(Rename(x, names=series), waves, strides=strides), shape=pairs)",
    given=_waves,
    example={"x": "N T=20 part=1", "window": "tap=6", "step": 3, "length": 6},
)
