"""Graphs as PyTorch modules, which call functions of ``torch`` on weights in buffers; compiled.

Source: PyTorch 2.13, torch.nn.functional and torch.fx.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import torch
from torch.nn import functional

from eval.peers import alike
from eval.peers.walk import Call, Framework, Placed, Tensor, walk
from eval.peers.windows import Sliding, counted, sliding
from vtensor.language.graph import Graph

FRAMEWORK = Framework("PyTorch", "first", torch.tensor, torch.permute, torch.reshape)
_POINTWISE = {
    "Add": torch.add,
    "BiasAdd": torch.add,
    "Div": torch.div,
    "Exp": torch.exp,
    "Mul": torch.mul,
    "Relu": torch.relu,
    "Relu6": functional.relu6,
    "Sigmoid": torch.sigmoid,
    "Sqrt": torch.sqrt,
    "Sub": torch.sub,
    "Tanh": torch.tanh,
}
FRAMEWORK.emitters.update(
    {name: alike.pointwise(function) for name, function in _POINTWISE.items()},
    **alike.MOVES,
    Concat=alike.concat(torch.cat),
    MatMul=alike.product(torch.matmul),
    Mean=alike.mean(torch.mean),
    Softmax=alike.softmax(torch.softmax),
)


def emit(graph: Graph) -> Any:
    """Return a ``torch.fx.GraphModule`` that maps inputs by name to the list of outputs.

    Axes of both are in the order of ``FRAMEWORK.order``. The module's code has a call for each
    node; its weights are buffers.

    Args:
        graph: all of its sizes are known, its values are f32.

    Raises:
        CannotBuild: the framework cannot express a node.
    """
    module = torch.fx.symbolic_trace(lambda feeds: walk(graph, FRAMEWORK, feeds))
    _take_biases(module)
    return module


def compiled(module: Any, *, bf16: bool = False) -> Callable[..., Sequence[Tensor]]:
    """Return the module in channels last, compiled by inductor for inference: weights are frozen.

    Args:
        module: from ``emit``.
        bf16: multiply in bf16, by autocast; a module that is bf16 throughout is no faster, and less
            exact.
    """
    torch._inductor.config.freezing = True
    fast = torch.compile(module.to(memory_format=torch.channels_last))

    def run(feeds: Mapping[str, Tensor]) -> Sequence[Tensor]:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            return [output.float() for output in fast(feeds)]

    return run


def _take_biases(module: Any) -> None:
    """Pass each bias that is added to a convolution's result to the convolution instead.

    Nothing else may read that result. Inductor fuses four operations into a convolution: those of a
    batch norm, but no addition in front of them.
    """
    for add in module.graph.find_nodes(op="call_function", target=torch.add):
        product, bias = add.args
        if product.target is not functional.conv2d or len(product.users) > 1:
            continue
        if product.args[1].op == bias.op == "get_attr":
            weights, numbers = (module.get_buffer(x.target) for x in (product.args[1], bias))
            if numbers.shape == (1, len(weights), 1, 1):
                setattr(module, bias.target, numbers.flatten())
                product.prepend(bias)
                product.update_arg(2, bias)
                add.replace_all_uses_with(product)
                module.graph.erase_node(add)
    module.recompile()


@FRAMEWORK.emits("Conv2D", "DepthwiseConv2D")
def _conv2d(call: Call) -> Placed:
    kernel = call.inputs[1]
    slide = sliding(call, [kernel.size(dim) for dim in "hw"])
    w = call.operand(1, ["G*O", "I", "h", "w"])
    x, pads = _padded(call, slide, slide.symmetric, 0.0)
    groups = kernel.dims.get("G", 1)
    result = functional.conv2d(x, w, None, slide.strides, pads, slide.dilations, groups)
    return Placed(result, call.order)


@FRAMEWORK.emits("MaxPool")
def _max_pool(call: Call) -> Placed:
    slide = sliding(call, call.op.kernel_shape)
    x, pads = _padded(call, slide, _within_half(slide), -inf)
    return Placed(
        functional.max_pool2d(x, slide.kernel, slide.strides, pads, slide.dilations), call.order
    )


@FRAMEWORK.emits("AvgPool")
def _avg_pool(call: Call) -> Placed:
    """Emit PyTorch's mean if it supports the pads; else add zeros first, and correct the means."""
    slide, include = sliding(call, call.op.kernel_shape), call.op.count_include_pad
    if max(slide.dilations) > 1:
        raise call.refuse(f"dilations {slide.dilations}")
    supported = _within_half(slide) and (not include or not call.op.ceil_mode)
    x, pads = _padded(call, slide, supported, 0.0)
    result = functional.avg_pool2d(
        x, slide.kernel, slide.strides, pads, count_include_pad=include or not supported
    )
    return Placed(result if supported else result / torch.tensor(counted(call, slide)), call.order)


@FRAMEWORK.emits("BatchNorm")
def _batch_norm(call: Call) -> Placed:
    others = [dim for dim in call.order if dim != "C"]
    if not others:
        raise call.refuse("no dims but C")
    order = (others[0], "C", *others[1:])
    scale, bias, mean, var = (call.operand(index, "C") for index in range(1, 5))
    x = call.operand(0, order)
    return Placed(functional.batch_norm(x, mean, var, scale, bias, eps=call.op.epsilon), order)


@FRAMEWORK.emits("LRN")
def _lrn(call: Call) -> Placed:
    """Emit the normalization; refuse an even ``size``.

    PyTorch sums one more channel before the middle one, VTensor one more after it.
    """
    op = call.op
    if op.size % 2 == 0:
        raise call.refuse(f"{op.size} channels; an odd number is taken")
    size = min(op.size, 2 * call.output.size("C") + 1)
    alpha = op.alpha * size / op.size
    return Placed(
        functional.local_response_norm(call.image(), size, alpha, op.beta, op.bias), call.order
    )


@FRAMEWORK.emits("Pad")
def _pad(call: Call) -> Placed:
    x, order, rows = alike.padded(call)
    return Placed(functional.pad(x, _flat(rows), value=call.op.value), order)


def _padded(call: Call, slide: Sliding, own: bool, value: float) -> tuple[Tensor, Sequence[int]]:
    """Return the image, and the pads of H and W that are left to PyTorch's operator.

    Args:
        call: the node.
        slide: its window.
        own: whether the operator supports the window's pads; if not, the returned image has them.
        value: the value of the pads in the image.
    """
    if own or not slide.padded:
        return call.image(), [before for before, _ in slide.pads]
    return functional.pad(call.image(), _flat(slide.pads), value=value), [0, 0]


def _within_half(slide: Sliding) -> bool:
    """Return whether PyTorch's pools support the pads: symmetric ones up to half the kernel."""
    pads = zip(slide.pads, slide.kernel, strict=True)
    return slide.symmetric and all(2 * before <= kernel for (before, _), kernel in pads)


def _flat(pads: Sequence[tuple[int, int]]) -> list[int]:
    """Return pads in PyTorch's order: before and after the last axis first."""
    return [pad for row in reversed(pads) for pad in row]
