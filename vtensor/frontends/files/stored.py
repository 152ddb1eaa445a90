"""The graph whose text a model carries.

The text counts only if the graph, written as ONNX, gives the model's nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from onnx import GraphProto, ModelProto, TensorProto

from optimizer.constants.originals import Original, Originals, array_of, place
from ptensor.pages import lasting
from vtensor.errors import ModelError
from vtensor.frontends.files.deferred_arrays import Place
from vtensor.frontends.files.inline import Parts
from vtensor.frontends.tensors import Array, place_of
from vtensor.frontends.writer import TEXT, write
from vtensor.language.graph import Graph, same_bytes
from vtensor.language.process.interrupts import MALFORMED, pass_signals
from vtensor.language.records import dataclass


@dataclass(frozen=True, eq=False)
class StoredText:
    """The text in a model's metadata, and the part of the model that it must agree with.

    Attributes:
        text: the text of the graph.
        skeleton: the model's graph without its initializers.
        opset: version of ONNX's operators.
        arrays: the model's arrays by name.
        places: where the bytes of an array are, by the array's name, as far as this is known.
    """

    text: str
    skeleton: GraphProto
    opset: int
    arrays: Originals
    places: Mapping[str, Place]


def stored_text(
    model: ModelProto, opset: int, arrays: Originals, parts: Parts
) -> StoredText | None:
    """Return a model's text of its graph, with the part of the model that the text must agree with.

    None if the model carries no text. The result keeps nothing of ``model`` alive.

    Args:
        model: the model.
        opset: version of ONNX's operators.
        arrays: the model's arrays by name.
        parts: the model's bytes: the raw data of large weights, and the rest.
    """
    texts = [entry.value for entry in model.metadata_props if entry.key == TEXT]
    if not texts:
        return None
    graph = model.graph
    part = GraphProto(name=graph.name, node=graph.node, input=graph.input, output=graph.output)
    places = _places(graph.initializer, arrays, parts)
    return StoredText(
        texts[0], GraphProto.FromString(part.SerializeToString()), opset, arrays, places
    )


def _places(tensors: Iterable[TensorProto], arrays: Originals, parts: Parts) -> dict[str, Place]:
    """Return the places of the bytes of initializers, by name.

    The bytes must be those that NumPy has in memory. The search ends at the first initializer for
    which they are not found; this one and all later ones are absent from the result.

    Args:
        tensors: the initializers.
        arrays: their arrays by name.
        parts: the model's bytes.
    """
    places, at = dict[str, Place](), 0
    for number, tensor in enumerate(tensors):
        origin = arrays.origin(tensor.name)
        if place := place_of(tensor, origin.nbytes):
            places[tensor.name] = place
        elif number in parts.data:
            places[tensor.name] = "", number
        else:  # if equal bytes come earlier than the array's own, their place serves as well
            at = parts.rest.find(array_of(origin).tobytes(), at)
            if at < 0:
                break
            places[tensor.name] = (at,)
    return places


def stored_graph(stored: StoredText) -> Graph | None:
    """Return the graph that a model's text describes, sealed.

    None if this graph, written as ONNX, does not give the model's nodes, for instance because the
    model was edited after it was written; the caller then reads the nodes. So the text can add
    names to what the nodes compute, but cannot change it.
    """
    origins = stored.arrays.origins()
    deferred = [array for array in origins.values() if isinstance(array, Original)]
    later = {n: a for n, a in origins.items() if isinstance(a, Original) and not a.held}
    blank = {name: _blank(array) for name, array in later.items()}
    present = {name: array_of(array) for name, array in origins.items() if name not in blank}
    graph = _agreeing(stored, present | blank, blank)
    if graph is not None:
        constants: dict[str, Array | Original] = dict(graph.constants)
        for name in constants.keys() & later.keys():
            constants[name] = later[name].reshape(graph.constants[name].shape)
        held = [array for array in deferred if array.held]
        return replace(graph, constants=Originals.of(constants, held))
    if blank:  # placeholders agree by address only: compare the values, since equal bytes may do
        try:
            for array in deferred:
                array.hold()
        except ModelError:  # the error is raised again when the model's nodes are read
            return None
        graph = _agreeing(stored, {**stored.arrays}, {})
    return graph and replace(graph, constants=Originals.of(graph.constants, deferred))


def _blank(array: Original) -> Array:
    """Return an array of the type and shape of an unread one, in memory that is never written."""
    return lasting(array.nbytes).view(array.dtype).reshape(array.shape)


def _agreeing(
    stored: StoredText, arrays: Mapping[str, Array], blank: Mapping[str, Array]
) -> Graph | None:
    """Return the graph that a model's text describes, sealed.

    None if this graph, written as ONNX, does not give the model's nodes and arrays.

    Args:
        stored: the text, and the part of the model that it must agree with.
        arrays: the model's arrays, or placeholders, by name.
        blank: those entries of ``arrays`` that are placeholders. A placeholder agrees only with
            itself, that is with an array at the same address; its values do not count.
    """
    from vtensor.frontends.export import skeleton  # needed only for models with a text

    try:
        graph = Graph.parse(stored.text, arrays).seal()
        exported = write(graph, stored.opset)
        same = (
            skeleton(graph, exported) == stored.skeleton and exported.arrays.keys() == arrays.keys()
        )
        alike = all(
            place(array) == place(arrays[name])
            if name in blank
            else same_bytes(array, arrays[name])
            for name, array in exported.arrays.items()
        )
    except MALFORMED as why:  # a malformed text, or a parameter in it
        pass_signals(why)
        return None
    return graph if same and alike else None
