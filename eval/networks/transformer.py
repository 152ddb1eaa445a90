"""A vision transformer as PyTorch's exporter writes it: Transposes bring tokens last, split the
heads of attention, and join them again.

Source: Dosovitskiy et al., An Image is Worth 16x16 Words, 2021; its smallest width, as DeiT-Ti.
"""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, helper

from eval.networks.keras import Export

PATCH, WIDTH, HEADS, LAYERS = 16, 192, 3, 4


def transformer(size: int = 224, batch: int = 1, *, delivered: bool = False) -> ModelProto:
    """Return a transformer over the patches of an image, with seeded weights.

    Args:
        size: height and width of an image, in pixels: a multiple of ``PATCH``.
        batch: the number of images in a batch.
        delivered: also make the result of each Transpose an output of the model, so that each runs
            as a copy, as in a framework that moves memory for every Transpose.
    """
    export, tokens = Export(seed=0), (size // PATCH) ** 2
    kernel = export.weight("patches/kernel", WIDTH, 3, PATCH, PATCH)
    x = export.add("Conv", "patches", "image", kernel, strides=[PATCH, PATCH])
    x = _reshaped(export, "patches/flat", x, batch, WIDTH, tokens)
    x = export.add("Transpose", "patches/last", x, perm=[0, 2, 1])
    x = export.add("Add", "positions", x, export.weight("position", tokens, WIDTH))
    for layer in range(LAYERS):
        name = f"layer{layer}"
        y = _attention(export, f"{name}/attention", _normalised(export, f"{name}/norm1", x), tokens)
        x = export.add("Add", f"{name}/add1", x, y)
        y = _dense(export, f"{name}/up", _normalised(export, f"{name}/norm2", x), WIDTH, 4 * WIDTH)
        y = _dense(export, f"{name}/down", export.add("Gelu", f"{name}/gelu", y), 4 * WIDTH, WIDTH)
        x = export.add("Add", f"{name}/add2", x, y)
    axes = export.constant("axes", np.array([1]))
    x = export.add("ReduceMean", "mean", x, axes, keepdims=0)
    logits = _dense(export, "logits", x, WIDTH, 1000)
    outputs = [helper.make_tensor_value_info(logits, TensorProto.FLOAT, [batch, 1000])]
    if delivered:
        moved = [node.output[0] for node in export.nodes if node.op_type == "Transpose"]
        outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in moved]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 3, size, size])
    graph = helper.make_graph(export.nodes, "transformer", [image], outputs, export.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _reshaped(export: Export, name: str, x: str, *shape: int) -> str:
    return export.add("Reshape", name, x, export.constant(f"{name}/shape", np.array(shape)))


def _dense(export: Export, name: str, x: str, inward: int, out: int) -> str:
    y = export.add("MatMul", name, x, export.weight(f"{name}/kernel", inward, out))
    return export.add("Add", f"{name}/add", y, export.weight(f"{name}/bias", out))


def _normalised(export: Export, name: str, x: str) -> str:
    scale = export.weight(f"{name}/scale", WIDTH, positive=True)
    bias = export.weight(f"{name}/bias", WIDTH)
    return export.add("LayerNormalization", name, x, scale, bias)


def _attention(export: Export, name: str, x: str, tokens: int) -> str:
    heads = dict[str, str]()
    for part, perm in {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}.items():
        y = _dense(export, f"{name}/{part}", x, WIDTH, WIDTH)
        y = _reshaped(export, f"{name}/{part}/split", y, -1, tokens, HEADS, WIDTH // HEADS)
        heads[part] = export.add("Transpose", f"{name}/{part}/heads", y, perm=perm)
    scores = export.add("MatMul", f"{name}/scores", heads["q"], heads["k"])
    scale = export.constant(f"{name}/scale", np.array((WIDTH // HEADS) ** -0.5))
    scores = export.add("Mul", f"{name}/scaled", scores, scale)
    mixed = export.add("Softmax", f"{name}/softmax", scores, axis=-1)
    mixed = export.add("MatMul", f"{name}/mixed", mixed, heads["v"])
    mixed = export.add("Transpose", f"{name}/join", mixed, perm=[0, 2, 1, 3])
    mixed = _reshaped(export, f"{name}/joined", mixed, -1, tokens, WIDTH)
    return _dense(export, f"{name}/out", mixed, WIDTH, WIDTH)
