"""Graphs as TensorFlow functions: plain ``tf.nn``, channels last, weights as constants.

Source: TensorFlow 2.21, tf.nn and tf.raw_ops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

import tensorflow as tf

from eval.peers import alike
from eval.peers.walk import Call, Framework, Placed, Tensor, walk
from eval.peers.windows import Sliding, counted, is_same, sliding
from vtensor.language.graph import Graph

FRAMEWORK = Framework("TensorFlow", "last", tf.constant, tf.transpose, tf.reshape)
_POINTWISE = {
    "Add": tf.add,
    "Div": tf.divide,
    "Exp": tf.exp,
    "Mul": tf.multiply,
    "Relu": tf.nn.relu,
    "Relu6": tf.nn.relu6,
    "Sigmoid": tf.sigmoid,
    "Sqrt": tf.sqrt,
    "Sub": tf.subtract,
    "Tanh": tf.tanh,
}
FRAMEWORK.emitters.update(
    {name: alike.pointwise(function) for name, function in _POINTWISE.items()},
    **alike.MOVES,
    Concat=alike.concat(tf.concat),
    MatMul=alike.product(tf.matmul),
    Mean=alike.mean(tf.reduce_mean),
    Softmax=alike.softmax(tf.nn.softmax),
)


def emit(graph: Graph, *, xla: bool = False) -> Callable[[Mapping[str, Tensor]], Sequence[Tensor]]:
    """Return a function from inputs by name to the list of outputs.

    Axes of both are in the order of ``FRAMEWORK.order``.

    Args:
        graph: all of its sizes are known, its values are f32.
        xla: compile it with XLA, which has no depthwise convolutions and is slower.

    Raises:
        CannotBuild: the framework cannot express a node.
    """
    inputs = {name: graph.values[name] for name in graph.inputs}
    specification = {
        name: tf.TensorSpec([x.size(dim) for dim in FRAMEWORK.order(x)], tf.float32)
        for name, x in inputs.items()
    }
    function = tf.function(
        lambda feeds: walk(graph, FRAMEWORK, feeds), autograph=False, jit_compile=xla
    )
    emitted: Callable[[Mapping[str, Tensor]], Sequence[Tensor]]
    emitted = function.get_concrete_function(specification)
    return emitted


@FRAMEWORK.emits("Conv2D")
def _conv2d(call: Call) -> Placed:
    slide = sliding(call, [call.inputs[1].size(dim) for dim in "hw"])
    w = call.operand(1, ["h", "w", "I", "G*O"])
    padding, dilations = _padding(call, slide), slide.dilations
    result = tf.nn.conv2d(call.image(), w, slide.strides, padding, dilations=dilations)
    return Placed(result, call.order)


@FRAMEWORK.emits("DepthwiseConv2D")
def _depthwise(call: Call) -> Placed:
    slide = sliding(call, [call.inputs[1].size(dim) for dim in "hw"])
    if len(set(slide.strides)) > 1 or max(slide.dilations) > 1:
        raise call.refuse("its strides must be equal, and dilations 1")
    w = call.operand(1, ["h", "w", "G", "O*I"])
    strides, padding = (1, *slide.strides, 1), _padding(call, slide)
    return Placed(tf.nn.depthwise_conv2d(call.image(), w, strides, padding), call.order)


@FRAMEWORK.emits("MaxPool")
def _max_pool(call: Call) -> Placed:
    """Emit the maximum; pads other than ``SAME``, which XLA does not support, are added first."""
    slide, x = _undilated(call), call.image()
    padding = _padding(call, slide)
    if not isinstance(padding, str):
        x, padding = tf.pad(x, padding, constant_values=-inf), "VALID"
    return Placed(tf.nn.max_pool2d(x, slide.kernel, slide.strides, padding), call.order)


@FRAMEWORK.emits("AvgPool")
def _avg_pool(call: Call) -> Placed:
    """Emit TensorFlow's mean, in which pads do not count, if it supports them; else add zeros
    first, and correct the means.
    """
    slide, x = _undilated(call), call.image()
    padding = _padding(call, slide)
    if padding == "VALID" or (padding == "SAME" and not call.op.count_include_pad):
        return Placed(tf.nn.avg_pool2d(x, slide.kernel, slide.strides, padding), call.order)
    whole = tf.nn.avg_pool2d(tf.pad(x, _around(slide)), slide.kernel, slide.strides, "VALID")
    return Placed(whole / counted(call, slide)[..., None], call.order)


@FRAMEWORK.emits("BatchNorm")
def _batch_norm(call: Call) -> Placed:
    order = (*(dim for dim in call.order if dim != "C"), "C")
    x, epsilon = call.operand(0, order), call.op.epsilon
    scale, bias, mean, var = (call.operand(index, "C") for index in range(1, 5))
    if len(order) != 4:
        return Placed(tf.nn.batch_normalization(x, mean, var, bias, scale, epsilon), order)
    fused = tf.raw_ops.FusedBatchNormV3(
        x=x, scale=scale, offset=bias, mean=mean, variance=var, epsilon=epsilon, is_training=False
    )
    return Placed(fused.y, order)


@FRAMEWORK.emits("BiasAdd")
def _bias_add(call: Call) -> Placed:
    """Emit an addition: along the last axis as ``bias_add``, which is fused into convolutions."""
    order = call.operands[0].dims
    if order[-1:] != call.operands[1].dims:
        return alike.pointwise(tf.add)(call)
    return Placed(tf.nn.bias_add(call.operand(0, order), call.operand(1, order[-1:])), order)


@FRAMEWORK.emits("LRN")
def _lrn(call: Call) -> Placed:
    """Emit the normalization; TensorFlow's alpha is for a sum of squares, VTensor's for a mean."""
    op, reach = call.op, min(call.op.size // 2, call.output.size("C"))
    if op.size % 2 == 0 or len(call.order) != 4:
        raise call.refuse(f"{op.size} channels, {len(call.order)} dims; odd and 4 are taken")
    result = tf.nn.local_response_normalization(
        call.image(), reach, op.bias, op.alpha / op.size, op.beta
    )
    return Placed(result, call.order)


@FRAMEWORK.emits("Pad")
def _pad(call: Call) -> Placed:
    x, order, rows = alike.padded(call)
    cut = tuple(slice(max(-before, 0), min(behind, 0) or None) for before, behind in rows)
    more = [(max(before, 0), max(behind, 0)) for before, behind in rows]
    return Placed(tf.pad(x[cut], more, constant_values=call.op.value) if more else x, order)


def _undilated(call: Call) -> Sliding:
    slide = sliding(call, call.op.kernel_shape)
    if max(slide.dilations) > 1:
        raise call.refuse(f"dilations {slide.dilations}")
    return slide


def _padding(call: Call, slide: Sliding) -> str | list[tuple[int, int]]:
    """Return ``VALID`` or ``SAME`` if that names the pads, else the pads of N, H, W and C."""
    if not slide.padded:
        return "VALID"
    return "SAME" if is_same(call, slide) else _around(slide)


def _around(slide: Sliding) -> list[tuple[int, int]]:
    """Return the pads before and after each of N, H, W and C."""
    return [(0, 0), *slide.pads, (0, 0)]
