"""The graph whose text a model carries, if it is what the model's nodes say."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import GraphProto, ModelProto, TensorProto

from vtensor.frontends.export import TEXT, skeleton
from vtensor.frontends.inline import Parts
from vtensor.frontends.tensors import Array
from vtensor.frontends.writer import write
from vtensor.language.graph import Graph, same_bytes
from vtensor.language.records import dataclass

#: Where an array's bytes are: at an offset in the model's bytes; in data beside them, by the place
#: of its initializer; or in a file: its location, offset and size.
Place = tuple[int] | tuple[str, int] | tuple[str, int, int]


@dataclass(frozen=True, eq=False)
class Stored:
    """The text in a model's metadata, and the part of the model that it must agree with.

    Attributes:
        places: where the arrays' bytes are, of those that have them in one piece.
    """

    text: str
    skeleton: GraphProto
    opset: int
    arrays: Mapping[str, Array]
    places: Mapping[str, Place]


def stored_text(
    model: ModelProto, opset: int, arrays: Mapping[str, Array], parts: Parts
) -> Stored | None:
    """What a model carries; None where it carries no text. Keeps nothing of the model alive."""
    texts = [entry.value for entry in model.metadata_props if entry.key == TEXT]
    if not texts:
        return None
    graph = model.graph
    part = GraphProto(name=graph.name, node=graph.node, input=graph.input, output=graph.output)
    places = {
        tensor.name: place
        for number, tensor in enumerate(graph.initializer)
        if (place := _place(number, tensor, arrays[tensor.name], parts))
    }
    return Stored(texts[0], GraphProto.FromString(part.SerializeToString()), opset, arrays, places)


def _place(number: int, tensor: TensorProto, array: Array, parts: Parts) -> Place | None:
    """Where the bytes of an initializer are; None where they are not as NumPy has them."""
    if tensor.data_location == TensorProto.EXTERNAL:  # whatever else it has
        entries = {entry.key: entry.value for entry in tensor.external_data}
        return entries["location"], int(entries.get("offset", 0)), array.nbytes
    if number in parts.data:
        return "", number
    offset = parts.rest.find(array.tobytes())  # equal bytes elsewhere are as good
    return (offset,) if offset >= 0 else None


def stored_graph(stored: Stored) -> Graph | None:
    """The graph of a text, sealed; None where the model is not what this graph is written as.

    So the text adds names to what the nodes compute, and can change none of it: a model that was
    edited after it was written is read from its nodes.
    """
    try:
        graph = Graph.parse(stored.text, stored.arrays).seal()
        written = write(graph, stored.opset)
        same = skeleton(graph, written) == stored.skeleton and _same(written.arrays, stored.arrays)
    except Exception:  # foreign bytes: whatever the text or a parameter in it leads to
        return None
    return graph if same else None


def _same(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> bool:
    """The initializers are those that the graph is written with."""
    return ours.keys() == theirs.keys() and all(
        same_bytes(array, theirs[name]) for name, array in ours.items()
    )
