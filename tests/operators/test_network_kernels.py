"""What oneDNN decides for every node of three real networks: never a reference kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from eval.networks.models import light_model
from libdesc.dispatcher import DispatchContext
from libdesc.onednn import Convolution
from libdesc.preferences import Preferences
from libdesc.registry import registry
from libdesc.routine import reference_kernel
from ptensor.buffer import TensorStorage
from ptensor.evaluation import Call, Mode, Step, Variant, installed
from ptensor.layout import Layout
from tests.operators.cases import IMAGES
from tests.operators.harness import Deciding
from vtensor.frontends.onnx import load_onnx
from vtensor.language.operators import run_compute
from vtensor.language.tensor import VTensor

NETWORKS = ("squeezenet", "resnet50", "vgg19")
Signature = tuple[Any, tuple[tuple[tuple[tuple[str, int], ...], bool], ...]]


class Looking(Deciding):
    """Steps are looked at, not run: nothing is allocated."""

    mode = Mode.NORMAL

    def __init__(self) -> None:
        self.kernels: list[str] = []
        self.asked: list[str] = []

    def emit(self, call: Call, step: Step, slots: Sequence[VTensor | int]) -> None:
        """Note the kernel, and the one that a convolution gets which may choose every layout."""
        routine = call.routine
        self.kernels.append(step.kernel)  # type: ignore[attr-defined]  # a Primitive
        if isinstance(routine, Convolution):
            self.asked.append(routine.primitive([Layout.ANY] * 3).kernel)


def signatures(network: str) -> Iterator[Signature]:
    """Each kind of node once: the operator, and of each input the dims and whether it is known."""
    graph = load_onnx(light_model(network))
    taken = {op for op, library, _ in registry().invokers if library == "onednn"}
    seen = set()
    for node in graph.nodes.values():
        inputs = tuple(
            (tuple(graph.values[name].dims.items()), name in graph.constants)
            for name in node.inputs
        )
        if node.op_name in taken and (node.op, inputs) not in seen:
            seen.add((node.op, inputs))
            yield node.op, inputs


def tensors(signature: Signature, image: str, layouts: Sequence[Layout] = ()) -> list[VTensor]:
    """The inputs without memory, images in a layout, or all in those that were decided."""
    made = []
    for index, (dims, constant) in enumerate(signature[1]):
        tensor = VTensor("f32", dict(dims))
        lies = Layout(image) if set(tensor.dims) == set("NCHW") else Layout.plain(tensor.dims)
        layout = layouts[index] if layouts else lies
        tensor.storage = TensorStorage("f32", tensor.dims, layout, constant=constant)
        made.append(tensor)
    return made


def look(signature: Signature, image: str) -> tuple[Variant, Looking]:
    """Decide a node and see which step it makes."""
    ctx = DispatchContext(node="node", preferences=Preferences(nodes={"node": "onednn"}))
    with installed(Deciding()):
        run_compute(ctx, signature[0], tensors(signature, image))
    assert ctx.variant is not None
    looking = Looking()
    with installed(looking):
        run_compute(ctx, signature[0], tensors(signature, image, ctx.variant.layouts))
    return ctx.variant, looking


@pytest.mark.parametrize("network", NETWORKS)
def test_no_reference_kernels(network: str) -> None:
    faults, count = [], 0
    for signature in signatures(network):
        for image in IMAGES:
            variant, seen = look(signature, image)
            count += 1
            if any(map(reference_kernel, seen.kernels)):
                row = " ".join(str(layout) for layout in variant.layouts)
                faults.append(f"{signature} from {image}: {seen.kernels} on {row}")
    assert count >= 30 * len(IMAGES)
    assert not faults, "\n".join(["", *faults])


@pytest.mark.parametrize("network", NETWORKS)
def test_convolutions_get_the_kernel_that_oneDNN_would_choose(network: str) -> None:  # noqa: N802
    """The decided layouts are its own answer, and come back to it as the same descriptors."""
    faults, count = [], 0
    for signature in signatures(network):
        _, seen = look(signature, "NCHW")
        count += len(seen.asked)
        if seen.asked and seen.kernels != seen.asked:
            faults.append(f"{signature}: {seen.kernels}, not {seen.asked}")
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
