"""The graph whose text a model carries, if it is what the model's nodes say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from onnx import GraphProto, ModelProto, TensorProto

from optimizer.originals import Original, Originals, array_of, place
from ptensor.pages import lasting
from vtensor.errors import ModelError
from vtensor.frontends.deferred_arrays import Place
from vtensor.frontends.inline import Parts
from vtensor.frontends.tensors import Array, place_of
from vtensor.frontends.writer import TEXT, write
from vtensor.language.graph import Graph, same_bytes
from vtensor.language.interrupts import MALFORMED, pass_signals
from vtensor.language.records import dataclass


@dataclass(frozen=True, eq=False)
class Stored:
    """The text in a model's metadata, and the part of the model that it must agree with.

    Attributes:
        places: where the arrays' bytes are, as far as that is known.
    """

    text: str
    skeleton: GraphProto
    opset: int
    arrays: Originals
    places: Mapping[str, Place]


def stored_text(model: ModelProto, opset: int, arrays: Originals, parts: Parts) -> Stored | None:
    """What a model carries; None where it carries no text. Keeps nothing of the model alive."""
    texts = [entry.value for entry in model.metadata_props if entry.key == TEXT]
    if not texts:
        return None
    graph = model.graph
    part = GraphProto(name=graph.name, node=graph.node, input=graph.input, output=graph.output)
    places = _places(graph.initializer, arrays, parts)
    return Stored(texts[0], GraphProto.FromString(part.SerializeToString()), opset, arrays, places)


def _places(tensors: Iterable[TensorProto], arrays: Originals, parts: Parts) -> dict[str, Place]:
    """Where the bytes of initializers are, up to the first one that has not NumPy's."""
    found, at = dict[str, Place](), 0
    for number, tensor in enumerate(tensors):
        origin = arrays.origin(tensor.name)
        if place := place_of(tensor, origin.nbytes):  # whatever else it has
            found[tensor.name] = place
        elif number in parts.data:
            found[tensor.name] = "", number
        else:  # equal bytes before its own are as good
            at = parts.rest.find(array_of(origin).tobytes(), at)
            if at < 0:
                break
            found[tensor.name] = (at,)
    return found


def stored_graph(stored: Stored) -> Graph | None:
    """The graph of a text, sealed; None where the model is not what this graph is written as.

    So the text adds names to what the nodes compute, and can change none of it: a model that was
    edited after it was written is read from its nodes.
    """
    origins = stored.arrays.origins()
    known = [one for one in origins.values() if isinstance(one, Original)]
    later = {n: one for n, one in origins.items() if isinstance(one, Original) and not one.held}
    blank = {name: _blank(one) for name, one in later.items()}
    given = {name: array_of(one) for name, one in origins.items() if name not in blank}
    graph = _agreeing(stored, given | blank, blank)
    if graph is not None:
        constants: dict[str, Array | Original] = dict(graph.constants)
        for name in constants.keys() & later.keys():
            constants[name] = later[name].reshape(graph.constants[name].shape)
        held = [one for one in known if one.held]
        return replace(graph, constants=Originals.of(constants, held))
    if blank:  # it may be that what is written is no initializer itself, but has the same bytes
        try:
            for one in known:
                one.hold()
        except ModelError:  # who reads its nodes says it, too
            return None
        graph = _agreeing(stored, {**stored.arrays}, {})
    return graph and replace(graph, constants=Originals.of(graph.constants, known))


def _blank(one: Original) -> Array:
    """Stands for an array that nobody has read: memory of its own, which nobody touches."""
    return lasting(one.nbytes).view(one.dtype).reshape(one.shape)


def _agreeing(
    stored: Stored, arrays: Mapping[str, Array], blank: Mapping[str, Array]
) -> Graph | None:
    """The graph of a text with these constants; None where the model is not what it is written as.

    Of what is blank nothing is looked at: it has to be written as it is.
    """
    from vtensor.frontends.export import skeleton  # other exporters' models carry no text

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
    except MALFORMED as why:  # foreign bytes: whatever the text or a parameter in it leads to
        pass_signals(why)
        return None
    return graph if same and alike else None
