"""What the description names: can it run here, its word for a layout, what it would like."""

from __future__ import annotations

from ptensor import Layout, PTensor
from ptensor.evaluation import Call

IMAGE, KERNEL = Layout("NHWC"), Layout("hwIO")


def available() -> str | None:
    """None, or why the kernels cannot be used here."""
    try:
        from vtensor_direct import _steps  # noqa: F401
    except ImportError as error:
        return f"the extension module does not load: {error}"
    return None


def extents(tensor: PTensor) -> tuple[int, ...]:
    """The kernels' word for a tensor: its sizes in memory, slowest first, pads included."""
    return tensor.required_layout.physical_shape(tensor.dims)


def preferred(call: Call) -> dict[int, Layout]:
    """Channels last, in images and in kernels: neighbours are added in one go."""
    return {i: KERNEL if "O" in t.dims else IMAGE for i, t in enumerate(call.operands)}
