"""The graph whose text a model carries, if it is what the model's nodes say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onnx import GraphProto, ModelProto

from optimizer.originals import Original, Originals
from vtensor.frontends.export import TEXT, skeleton
from vtensor.frontends.tensors import Array
from vtensor.frontends.writer import write
from vtensor.language.graph import Graph, same_bytes
from vtensor.language.records import dataclass


@dataclass(frozen=True, eq=False)
class Stored:
    """The text in a model's metadata, and the part of the model that it must agree with."""

    text: str
    skeleton: GraphProto
    opset: int
    arrays: Originals


def stored_text(model: ModelProto, opset: int, arrays: Originals) -> Stored | None:
    """What a model carries; None where it carries no text. Keeps nothing of the model alive."""
    texts = [entry.value for entry in model.metadata_props if entry.key == TEXT]
    if not texts:
        return None
    graph = model.graph
    part = GraphProto(name=graph.name, node=graph.node, input=graph.input, output=graph.output)
    return Stored(texts[0], GraphProto.FromString(part.SerializeToString()), opset, arrays)


def stored_graph(stored: Stored) -> Graph | None:
    """The graph of a text, sealed; None where the model is not what this graph is written as.

    So the text adds names to what the nodes compute, and can change none of it: a model that was
    edited after it was written is read from its nodes.
    """
    known = [one for one in stored.arrays.origins().values() if isinstance(one, Original)]
    try:
        for one in known:
            one.hold()
        arrays = {**stored.arrays}
        graph = Graph.parse(stored.text, arrays).seal()
        written = write(graph, stored.opset)
        same = skeleton(graph, written) == stored.skeleton and _same(written.arrays, arrays)
    except Exception:  # foreign bytes: whatever the text or a parameter in it leads to
        return None
    if not same:
        return None
    return replace(graph, constants=Originals.of(graph.constants, known))


def _same(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> bool:
    """The initializers are those that the graph is written with."""
    return ours.keys() == theirs.keys() and all(
        same_bytes(array, theirs[name]) for name, array in ours.items()
    )
