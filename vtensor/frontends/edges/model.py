"""A cut model as a session runs it: steps before, the numeric network, steps after."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto, helper

from libdesc.registry import ready
from vtensor.errors import BudgetError, InputError, ModelError, VTensorError
from vtensor.frontends.edges.cut import cut
from vtensor.frontends.edges.kinds import attributes_of, is_text, label_of, step_of
from vtensor.frontends.edges.steps import Step
from vtensor.frontends.edges.texts import numbers_of, table_of, text_array, texts_of
from vtensor.frontends.network import reads_of
from vtensor.frontends.tensors import element_type, sizes_of
from vtensor.language.cached import cached_property
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.process.interrupts import pass_signals
from vtensor.storage.inputs import Port, check_names

Array = np.ndarray[Any, Any]

#: Runs the numeric network: the names of the wanted outputs, and the arrays by name.
Run = Callable[[list[str], Mapping[str, Any]], Sequence[Array]]

#: Makes a model of the graph of a node, and returns what runs it.
Open = Callable[[ModelProto], Run]

#: Names of element types in types that are no arrays, by ours.
_NAMES = {"f32": "float", "f64": "double", "f16": "float16", "s64": "int64", "s32": "int32"}


class Edges:
    """The Python steps of a model that has texts, sequences, optional values or maps.

    Args:
        model: the model's path, its bytes, or its ``ModelProto``.
        opened: makes what runs a graph of a node; a model that no run needs has none.
        max_bytes: limit of what the turns of a loop leave, in bytes; None is a Session's default.

    Attributes:
        core: the numeric model of the first part.
        root: the folder of the model's file; empty for a model from memory.
        inputs, outputs: the ports of the whole model. The element type of a port of texts is
            ``string``; that of other ports that are no arrays is the type as ONNX Runtime writes
            it: ``seq(map(string,tensor(float)))``.

    Raises:
        ModelError: a numeric node computes with texts.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | ModelProto,
        opened: Open | None = None,
        max_bytes: int | None = None,
    ) -> None:
        label, self.root = "the model", ""
        if isinstance(model, str | os.PathLike):
            path = Path(model).resolve()
            label, self.root, model = str(model), str(path.parent), path.read_bytes()
        ready()  # fills the registry, through which names of operators are found
        proto = model if isinstance(model, ModelProto) else ModelProto.FromString(model)
        parts = cut(proto, label)
        self.core, _ = parts.parts[0]
        constants = {tensor.name for tensor in proto.graph.initializer}
        declared = [value for value in proto.graph.input if value.name not in constants]
        self.inputs = [_port(value.name, value.type) for value in declared]
        self.outputs = [
            _port(
                value.name,
                value.type
                if value.type.WhichOneof("value")
                else parts.types.get(value.name, TypeProto()),
            )
            for value in proto.graph.output
        ]
        self._known, self._texts = parts.known, table_of(parts.texts)

        def steps(nodes: Sequence[NodeProto]) -> list[_PythonStep]:
            graphs = [_graphs(node, proto, parts.types, opened) for node in nodes]
            return [_PythonStep(*row, max_bytes) for row in zip(nodes, graphs, strict=True)]

        self._before = steps(parts.before)
        self._parts = [_Part(core, steps(after), opened) for core, after in parts.parts]
        self._coded = {name for name, kind in parts.types.items() if is_text(kind)}
        self._optional = {v.name for v in declared if v.type.HasField("optional_type")}

    @property
    def parted(self) -> bool:
        """True if there are several numeric models."""
        return len(self._parts) > 1

    @property
    def plain(self) -> bool:
        """True if the numeric model is the whole model: only sequences inside were replaced."""
        names = [[port.name for port in ports] for ports in (self.inputs, self.outputs)]
        core = [
            [value.name for value in ends]
            for ends in (self.core.graph.input, self.core.graph.output)
        ]
        ports = (*self.inputs, *self.outputs)
        is_numeric = all(port.dtype in ITEMSIZE for port in ports)
        steps = [*self._before, *(step for part in self._parts for step in part.after)]
        return is_numeric and names == core and not steps

    def run(
        self, outputs: Sequence[str] | None, inputs: Mapping[str, object], core: Run
    ) -> list[Any]:
        """Run the model and return its outputs.

        Args:
            outputs: the names of the wanted outputs; None or an empty list is all.
            inputs: the values by name: arrays; arrays or lists of texts; lists for sequences; None
                for an absent optional value.
            core: runs the numeric network of the first part.

        Raises:
            InputError: a name or a value is wrong.
        """
        check_names(inputs, self.inputs)
        known = {port.name for port in self.outputs}
        wanted = [*outputs] if outputs else [port.name for port in self.outputs]
        if unknown := [name for name in wanted if name not in known]:
            raise InputError(f"no output {', '.join(map(repr, unknown))}")
        values: dict[str, Any] = {**self._known}
        for port in self.inputs:
            values[port.name] = self._fed(port, inputs[port.name])
        for step in self._before:
            step(values)
        table, coded = dict(self._texts), self._coded
        for part, asked, after in self._needed(wanted):
            if asked:
                feeds = {
                    name: numbers_of(values[name], table) if name in coded else values[name]
                    for name in part.feeds
                }
                run = core if part is self._parts[0] else part.run
                for name, array in zip(asked, run(asked, feeds), strict=True):
                    values[name] = texts_of(array, table) if name in coded else array
            for step in after:
                step(values)
        return [values[name] for name in wanted]

    def _fed(self, port: Port, value: object) -> Any:
        """Return an input as steps and the numeric network take it."""
        if port.dtype == "string":
            return text_array(value, port.name)
        if port.name in self._optional and value is None:
            return None
        if port.dtype.startswith("seq"):
            if not isinstance(value, list | tuple):
                raise InputError(f"input {port.name!r}: a list is wanted for a sequence")
            return [*value]
        if port.dtype.startswith("map") and not isinstance(value, Mapping):
            raise InputError(f"input {port.name!r}: a dict is wanted for a map")
        return value

    def _needed(self, wanted: Sequence[str]) -> list[tuple[_Part, list[str], list[_PythonStep]]]:
        """Return each part with those of its outputs, and those of the steps after it, that the
        wanted outputs need.
        """
        names, rows = {*wanted}, []
        for part in reversed(self._parts):
            steps = []
            for step in reversed(part.after):
                if names.intersection(step.makes):
                    names.update(step.reads)
                    steps.append(step)
            asked = [name for name in part.makes if name in names]
            names.update(part.feeds if asked else ())
            rows.append((part, asked, steps[::-1]))
        return rows[::-1]


class _Part:
    """A numeric network and the steps after it.

    Args:
        core: the network as a model.
        after: the steps.
        opened: makes what runs the network; None if nothing runs it here.

    Attributes:
        feeds, makes: names of its inputs and outputs.
    """

    def __init__(self, core: ModelProto, after: Sequence[_PythonStep], opened: Open | None) -> None:
        self.after, self._core, self._opened = after, core, opened
        self.feeds = [value.name for value in core.graph.input]
        self.makes = [value.name for value in core.graph.output]

    @cached_property
    def run(self) -> Run:
        """The function that runs the network."""
        assert self._opened is not None, "a session opens what it runs"
        return self._opened(self._core)


class _Graph:
    """A graph of a node, which a step calls with the graph's inputs.

    It becomes a model when it is first called; outer values that it reads are further inputs.

    Args:
        graph: the graph.
        model: the model that it belongs to.
        types: the known types of the model's values.
        opened: makes what runs the graph.
    """

    def __init__(
        self, graph: GraphProto, model: ModelProto, types: Mapping[str, TypeProto], opened: Open
    ) -> None:
        node = NodeProto(attribute=[helper.make_attribute("body", graph)])
        self._names, self.outer = [v.name for v in graph.input], sorted(reads_of(node))
        self._outputs = [value.name for value in graph.output]
        self._run: Run | None = None
        self._opened, self._body = opened, ModelProto()
        self._body.CopyFrom(model)
        self._body.graph.CopyFrom(graph)
        self._body.graph.input.extend(
            ValueInfoProto(name=name, type=types.get(name)) for name in self.outer
        )

    def __call__(self, values: Mapping[str, Any], inputs: Sequence[Any]) -> Sequence[Any]:
        """Run the graph and return its outputs.

        Args:
            values: the values of the model, by name.
            inputs: the graph's inputs.

        Raises:
            InputError: the graph has another number of inputs.
        """
        if len(inputs) != len(self._names):
            raise InputError(f"its graph has {len(self._names)} inputs, and gets {len(inputs)}")
        self._run = self._run or self._opened(self._body)
        given = dict(zip(self._names, inputs, strict=True))
        return self._run(self._outputs, {**{n: values[n] for n in self.outer}, **given})


def _graphs(
    node: NodeProto, model: ModelProto, types: Mapping[str, TypeProto], opened: Open | None
) -> dict[str, _Graph]:
    """Return the graphs of a node by the names of the attributes that hold them."""
    graphs = {a.name: a.g for a in node.attribute if a.type == a.GRAPH}
    if opened is None:
        return {}
    return {name: _Graph(graph, model, types, opened) for name, graph in graphs.items()}


class _PythonStep:
    """A node as a function of values."""

    def __init__(
        self, node: NodeProto, graphs: Mapping[str, _Graph], max_bytes: int | None
    ) -> None:
        self._label, self._name = label_of(node), node.name
        self._inputs, self.makes = [*node.input], [*node.output]
        outer = [name for graph in graphs.values() for name in graph.outer]
        self.reads = [name for name in (*node.input, *outer) if name]
        self._attributes, self._graphs = attributes_of(node), graphs
        if graphs:
            self._attributes["max_bytes"] = max_bytes
        self._function: Step = step_of(node) or _constant

    def __call__(self, values: dict[str, Any]) -> None:
        """Compute the node's outputs, and add them to ``values``.

        Raises:
            InputError: the node does not take its inputs.
            BudgetError: its outputs take more bytes than a network may.
        """
        inputs = [values[name] if name else None for name in self._inputs]
        graphs = {name: partial(graph, values) for name, graph in self._graphs.items()}
        try:
            with np.errstate(all="ignore"):
                results = self._function({**self._attributes, **graphs}, *inputs)
                made = [*islice(results, len(self.makes))]
        except (InputError, BudgetError) as error:
            kind = BudgetError if isinstance(error, BudgetError) else InputError
            raise kind(f"{self._label} {self._name!r}: {error}") from error
        except VTensorError:  # of a run of its graph
            raise
        except Exception as error:  # inputs of wrong kinds
            pass_signals(error)
            raise InputError(
                f"{self._label} {self._name!r} does not take its inputs: {error}"
            ) from error
        if len(made) < len(self.makes) and any(self.makes[len(made) :]):
            text = f"delivers no {self.makes[len(made)]!r}, as a Loop does that runs no turn"
            raise InputError(f"{self._label} {self._name!r} {text}")
        values.update(zip(self.makes, made, strict=False))


def _constant(attributes: Mapping[str, Any]) -> Sequence[Any]:
    """Return the value of a Constant."""
    [(name, value)] = attributes.items()
    if name == "value":
        return [value]
    if name.startswith("value_string"):
        return [np.asarray(value, object)]
    return [np.asarray(value, np.int64 if "int" in name else np.float32)]


def _port(name: str, kind: TypeProto) -> Port:
    """Return the port of an input or output."""
    which = kind.WhichOneof("value")
    if which is None:
        raise ModelError(f"the type of {name!r} is unknown")
    if which != "tensor_type":
        return Port(name, type_name(kind), (), (), any_rank=True)
    sizes = sizes_of(kind)
    dims = tuple(f"D{axis}" for axis in range(len(sizes or ())))
    dtype = "string" if is_text(kind) else element_type(kind.tensor_type.elem_type, f"{name!r}")
    return Port(name, dtype, sizes or (), dims, any_rank=sizes is None)


def type_name(kind: TypeProto) -> str:
    """Return a type as ONNX Runtime writes it."""
    which = kind.WhichOneof("value")
    if which == "sequence_type":
        return f"seq({type_name(kind.sequence_type.elem_type)})"
    if which == "optional_type":
        return f"optional({type_name(kind.optional_type.elem_type)})"
    if which == "map_type":
        return f"map({_element(kind.map_type.key_type)},{type_name(kind.map_type.value_type)})"
    return f"tensor({_element(kind.tensor_type.elem_type)})"


def _element(number: int) -> str:
    from onnx import TensorProto

    if number == TensorProto.STRING:
        return "string"
    name = element_type(number, "an element")
    return _NAMES.get(name, name)
