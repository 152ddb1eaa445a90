"""Conv2D and Relu on the library ``direct``."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from libdesc import guideline, invoker
from ptensor import Layout, PTensor, emit, lib_tagger
from vtensor.language.operators import Context
from vtensor.tensor import VTensor

if TYPE_CHECKING:
    from ops.convolution import Conv2D
    from ops.relu import Relu


@dataclass(frozen=True)
class Step:
    """A native call as VTensor takes it."""

    capsule: object

    def __vtensor_step__(self) -> object:
        return self.capsule


def is_simple(op: Conv2D, x: VTensor, w: VTensor, y: VTensor) -> bool | str:
    """True, or what of a convolution the kernel does not do."""
    if "G" in w.dims:
        return "has no groups"
    return op.dilations == (1, 1) or "has no dilations"


@invoker("Conv2D", library="direct", dtypes=["f32"], when=is_simple)
def direct_conv2d(ctx: Context, op: Conv2D, x: VTensor, w: VTensor, y: VTensor) -> None:
    src, weights, dst = PTensor(x), PTensor(w), PTensor(y)
    for tensor in (src, weights, dst):
        tensor.require(guideline("direct", tensor))
    if lib_tagger("direct", [src, weights], [dst]):
        return
    from vtensor_direct import _steps

    x_sizes, w_sizes, y_sizes = (t.library_desc("direct") for t in (src, weights, dst))
    step = Step(_steps.convolution(x_sizes, w_sizes, y_sizes, op.strides, op.pads))
    emit(step, [src, weights, dst])


@invoker("Relu", library="direct", dtypes=["f32"])
def direct_relu(ctx: Context, op: Relu, x: VTensor, y: VTensor) -> None:
    src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
    if lib_tagger("direct", [src], [dst]):
        return
    from vtensor_direct import _steps

    emit(Step(_steps.relu(prod(dst.library_desc("direct")))), [src, dst])
