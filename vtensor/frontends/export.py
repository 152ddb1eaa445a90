"""ONNX out: a ``Graph`` as a model, in memory or in a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from onnx import (
    GraphProto,
    ModelProto,
    StringStringEntryProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from libdesc.registry import ready
from vtensor.errors import InputError
from vtensor.frontends.tensors import Array
from vtensor.frontends.writer import TEXT, OnnxGraph, write
from vtensor.language.dtype import bits, from_numpy, numpy_dtype
from vtensor.language.graph import Graph
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.symbolic.sizes import OpenSize
from vtensor.language.tensor import VTensor

#: The default opset, and the oldest that can be written.
OPSET = 17
#: If all weights together have more bytes, they go to a data file. In the model's file, there would
#: be three copies in memory at once: in the graph, in the protocol buffer and in its bytes. Also, a
#: protocol buffer has at most 2 GiB.
EXTERNAL_BYTES = 64 << 20
#: Tensors of fewer bytes stay in the model's file: shape inference reads them.
INSIDE_BYTES = 1 << 10
#: Alignment of each tensor in the data file, in bytes, so that it can be mapped.
ALIGNMENT = 64


def export(graph: Graph, opset: int = OPSET) -> ModelProto:
    """Return a graph as an ONNX model.

    Args:
        graph: a graph with at least one output. An open size becomes a ``dim_param``, a named size.
        opset: version of ONNX's operators, from 17 on.

    Returns:
        The model, with a copy of the constants. Each axis has its dim name as its denotation. The
        metadata entry ``vtensor.graph`` holds the graph as text, so ``load_onnx`` returns an equal
        graph as long as the model's nodes are not edited.

    Raises:
        UnsupportedOperatorError: ONNX cannot express some nodes in this opset; the error lists all.
        InputError: there is no such opset.

    >>> from ops import Relu
    >>> g = Graph("tiny")
    >>> g.output(g.add(Relu(), g.input("x", {"N": None, "C": 3}), name="y"))
    >>> print(onnx.printer.to_text(export(g).graph))
    tiny (float[N,3] x) => (float[N,3] y) {
       [y] y = Relu (x)
    }
    """
    model, arrays = _model(graph, opset)
    for name, array in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def save_onnx(graph: Graph, path: str | os.PathLike[str], *, opset: int = OPSET) -> None:
    """Write a graph to an ONNX file.

    Args:
        graph: a graph with at least one output.
        opset: version of ONNX's operators, from 17 on.
        path: the file. If all weights together have more than 64 MiB, they go to a data file next
            to it, whose name is that of the file with ``.data`` appended.

    Raises:
        UnsupportedOperatorError: ONNX cannot express some nodes in this opset; the error lists all.
        InputError: there is no such opset, or a file cannot be written.
    """
    file = Path(path)
    model, arrays = _model(graph, opset)
    try:
        data_file = file.with_name(f"{file.name}.data")
        if sum(array.nbytes for array in arrays.values()) > EXTERNAL_BYTES:
            with _replaced(data_file) as data:
                for name, array in arrays.items():
                    model.graph.initializer.append(_placed(name, array, data, data_file.name))
        else:
            tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
            model.graph.initializer.extend(tensors)
        with _replaced(file) as out:
            out.write(model.SerializeToString())
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        pass_signals(error)
        raise InputError(f"{file}: the model cannot be written there: {error}") from error


def _model(graph: Graph, opset: int) -> tuple[ModelProto, dict[str, Array]]:
    """Return a graph as an ONNX model without initializers, and the initializers by name.

    Raises:
        UnsupportedOperatorError: ONNX cannot express some nodes in this opset; the error lists all.
        InputError: there is no such opset.
    """
    newest = onnx.defs.onnx_opset_version()
    if opset not in range(OPSET, newest + 1):
        raise InputError(f"opset {opset!r} is not among {OPSET} to {newest}")
    ready()  # fills the registry, through which spellings are found
    exported = write(graph, opset)
    opsets = [helper.make_opsetid(domain, version) for domain, version in exported.opsets.items()]
    model = helper.make_model(
        skeleton(graph, exported),
        opset_imports=opsets,
        ir_version=helper.find_min_ir_version_for(opsets[:1]),
        producer_name="vtensor",
    )
    helper.set_model_props(model, {TEXT: str(graph)})
    return model, exported.arrays


def skeleton(graph: Graph, exported: OnnxGraph) -> GraphProto:
    """Return the ``GraphProto`` of a graph without its initializers.

    Args:
        graph: the graph.
        exported: its nodes, as ``write`` returns them.
    """
    inputs = [_declared(name, graph.values[name]) for name in graph.inputs]
    outputs = [_declared(alias, graph.values[name]) for alias, name in graph.outputs.items()]
    return helper.make_graph(exported.nodes, graph.name or "graph", inputs, outputs)


def _declared(name: str, value: VTensor) -> ValueInfoProto:
    """Return ONNX's declaration of a value: its type, with its dim names as denotations of axes."""
    sizes = [str(s) if isinstance(s, OpenSize) else s for s in value.dims.values()]
    kind = helper.np_dtype_to_tensor_dtype(numpy_dtype(value.dtype))
    return helper.make_tensor_value_info(name, kind, sizes, shape_denotation=list(value.dims))


@contextmanager
def _replaced(file: Path) -> Iterator[BinaryIO]:
    """Yield a stream for the new content of ``file``, which it gets when the block ends.

    If the block raises, ``file`` stays as it was.
    """
    part = file.with_name(f"{file.name}.part")
    try:
        with part.open("wb") as stream:
            yield stream
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _placed(name: str, array: Array, data: BinaryIO, location: str) -> TensorProto:
    """Append an array to the model's data file and return a ``TensorProto`` that refers to its
    bytes there.

    An array of fewer than INSIDE_BYTES bytes, or whose elements take less than a byte each, is put
    into the ``TensorProto`` itself.

    Args:
        name: the tensor's name.
        array: its elements.
        data: the open data file.
        location: the data file's name.
    """
    if array.nbytes < INSIDE_BYTES or bits(from_numpy(array.dtype)) < 8:
        return numpy_helper.from_array(array, name)
    data.write(bytes(-data.tell() % ALIGNMENT))
    place = {"location": location, "offset": data.tell(), "length": array.nbytes}
    data.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return TensorProto(
        name=name,
        dims=array.shape,
        data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
        data_location=TensorProto.EXTERNAL,
        external_data=[StringStringEntryProto(key=k, value=str(v)) for k, v in place.items()],
    )
