"""What oneDNN decides for every node of three real networks: never a reference kernel."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from eval.networks.models import light_model
from libdesc.onednn import Convolution
from libdesc.registry import registry
from libdesc.routine import reference_kernel
from ptensor.layout import Layout
from tests.operators.calls.levels import seen
from tests.operators.harness import Given, plain
from tests.operators.tables.cases import IMAGES
from vtensor.frontends.onnx import load_onnx
from vtensor.language.tensor import VTensor

NETWORKS = ("squeezenet", "resnet50", "vgg19")


@cache
def calls(network: str) -> dict[str, tuple[object, list[Given]]]:
    """Return each kind of call once: the operator and inputs, whose values take no memory."""
    graph = load_onnx(light_model(network))
    taken = {op for op, library, _ in registry().invokers if library == "onednn"}
    kinds = {}
    for node in graph.nodes.values():
        inputs = []
        for name in node.inputs:
            dims = graph.values[name].dims
            zeros = np.broadcast_to(np.float32(0), [*dims.values()])
            inputs.append(plain(zeros, " ".join(dims), name in graph.constants))
        if node.op_name in taken:
            kinds[f"{node.op} {[(each.extents, each.constant) for each in inputs]}"] = (
                node.op,
                inputs,
            )
    return kinds


def from_layout(inputs: list[Given], image: str) -> list[Given]:
    """Return inputs of which the images have a layout."""
    layout = Layout(image)
    return [
        replace(given, layout=layout) if {*given.dims} == {*layout.dims} else given
        for given in inputs
    ]


@pytest.mark.parametrize("network", NETWORKS)
def test_no_reference_kernels(network: str) -> None:
    faults = []
    for kind, (op, inputs) in calls(network).items():
        for image in IMAGES:
            seeing = seen(op, from_layout(inputs, image))
            if any(map(reference_kernel, seeing.kernels)):
                row = " ".join(map(str, seeing.variant.layouts))
                faults.append(f"{kind} from {image}: {seeing.kernels} on {row}")
    assert len(calls(network)) >= 30
    assert not faults, "\n".join(["", *faults])


@pytest.mark.parametrize("network", NETWORKS)
def test_convolutions_get_the_kernel_that_oneDNN_would_choose(network: str) -> None:  # noqa: N802
    """The decided layouts are its own answer, and come back to it as the same descriptors."""
    faults, count = [], 0
    for kind, (op, inputs) in calls(network).items():
        seeing = seen(op, inputs)
        if isinstance(seeing.routine, Convolution):
            count += 1
            free = seeing.routine.primitive([Layout.ANY] * 3).kernel
            if seeing.kernels != [free]:
                faults.append(f"{kind}: {seeing.kernels}, not {free}")
    assert count >= 9
    assert not faults, "\n".join(["", *faults])


@pytest.mark.parametrize(
    ("size", "order"), [("H=40 W=1", "NCWH"), ("H=1 W=40", "NCHW"), ("H=1 W=1", "NCHW")]
)
def test_kernels_work_along_the_dim_that_has_places(size: str, order: str) -> None:
    """Along a dim of one place a kernel of oneDNN's reaches a tenth of what it otherwise does."""
    sizes = {dim: int(number) for dim, number in (part.split("=") for part in size.split())}
    image = VTensor("f32", {"N": 1, "C": 64, **sizes})
    window = VTensor("f32", {"O": 64, "I": 64, "h": min(sizes["H"], 5), "w": min(sizes["W"], 5)})
    out = VTensor("f32", {"N": 1, "C": 64, **{d: max(n - 4, 1) for d, n in sizes.items()}})
    routine = Convolution(image, window, out, (1, 1), (0, 0, 0, 0), (1, 1))
    assert "".join(routine.operands[0].order) == order
    assert "".join(routine.operands[1].order[2:]) == order[2:].lower()
