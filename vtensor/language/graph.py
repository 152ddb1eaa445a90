"""The dataflow graph: operators on VTensors, built in Python, immutable once sealed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, overload

from vtensor.errors import DimError, GraphError
from vtensor.language.dtype import from_numpy
from vtensor.language.node import Node
from vtensor.language.operators import (
    Context,
    OneOutput,
    SeveralOutputs,
    info_of,
    label_of,
    run_compute,
)
from vtensor.language.records import dataclass, replace
from vtensor.language.symbolic.sizes import OpenSize, closed, open_names
from vtensor.language.tensor import Option, VTensor
from vtensor.language.text import graph_lines, parse_graph
from vtensor.language.wording import counted

if TYPE_CHECKING:
    import networkx as nx
    import numpy as np

__all__ = ["ArrayLike", "Graph", "Node", "same_bytes"]


class ArrayLike(Protocol):
    """An argument that NumPy can convert to an array."""

    def __array__(self, dtype: Any = None, /) -> np.ndarray[Any, Any]:
        """Return the object as an array; of the element type ``dtype`` unless that is None."""


@dataclass(eq=False, repr=False)
class Graph:
    """A network: inputs, constants, operators, outputs.

    >>> from ops import Relu
    >>> g = Graph("tiny")
    >>> x = g.input("x", {"N": 1, "C": 3})
    >>> g.output(g.add(Relu(), x, name="relu"))
    >>> print(g)
    graph tiny
    input x : f32 N=1 C=3
    relu = Relu() x : f32 N=1 C=3
    output relu

    Errors name the node, and a failed call leaves the graph as it was.

    Attributes:
        name: the graph's name.
        values: all inputs, constants and outputs of nodes, by name.
        constants: the constants' arrays by name.
        inputs: the names of the inputs, in order.
        outputs: by name of each output, the name of its value, in order.
        nodes: the nodes by name, in order.
        sealed: True once the graph is immutable.
        merged: by name of a node that a simplification removed, the name of the node that now does
            its work.
        offers: by name of a node, the nodes after it that its library may fuse into it (run in the
            same step), in order. The library takes none, the first few, or all of them.
        rewritten: the number of applications of each rewrite rule, by the rule's name.
        applied: a pair for each application of a rewrite rule: the rule's name, and the name of the
            node at which its pattern ended.
        passes: the names of the simplifications that ran.
        notes: by name of a node, why a simplification added it, or computes it in a wider type.
    """

    name: str = "graph"
    values: dict[str, VTensor] = field(default_factory=dict)
    constants: MutableMapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    sealed: bool = False
    merged: dict[str, str] = field(default_factory=dict)
    offers: Mapping[str, Sequence[Node]] = field(default_factory=dict)
    rewritten: Mapping[str, int] = field(default_factory=dict)
    applied: Collection[tuple[str, str]] = frozenset()
    passes: tuple[str, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    _scope: str = field(default="", init=False)
    _next: dict[str, int] = field(default_factory=dict, init=False)

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Put ``name/`` before the names of nodes and constants that are added inside a ``with``
        block.

        Inside a second such block, both names stand before: ``outer/inner/``.

        >>> from ops import Relu
        >>> g = Graph()
        >>> x = g.input("x", {"N": 1})
        >>> with g.scope("block1"):
        ...     g.add(Relu(), x).name, g.add(Relu(), x, name="last").name
        ('block1/Relu:0', 'block1/last')
        """
        outer, self._scope = self._scope, f"{self._scope}{name}/"
        try:
            yield
        finally:
            self._scope = outer

    def input(self, name: str, dims: Mapping[str, int | None], dtype: str = "f32") -> VTensor:
        """Add an input: a value that every run takes.

        Args:
            name: the input's name.
            dims: sizes by dim, in the order of the axes of the user's arrays. A size of None is
                open: each run decides it. All inputs in which the dim of this name is open have the
                same size in it.
            dtype: element type.

        >>> from ops import Relu
        >>> g = Graph()
        >>> g.add(Relu(), g.input("x", {"N": None, "C": 3})).summary()
        'f32 N=N C=3'
        """
        sizes = {dim: OpenSize.of(dim) if size is None else size for dim, size in dims.items()}
        value = VTensor(dtype, sizes, Option(name=self._free(name)))
        self.values[name] = value
        self.inputs.append(name)
        return value

    def constant(self, array: ArrayLike, dims: str | Sequence[str], name: str = "") -> VTensor:
        """Add a constant: a value that is known now.

        Args:
            array: the values. The graph holds this array, not a copy; it must not change.
            dims: names of the array's axes, in order: ``"O I h w"`` or a sequence of names.
            name: the constant's name; by default ``constant:0``, ``constant:1``, ...

        Raises:
            DimError: ``dims`` does not have one name for each axis, or has a name twice.
        """
        import numpy as np

        values = np.asarray(array)
        if not values.dtype.isnative:
            values = values.astype(values.dtype.newbyteorder("="))
        names = dims.split() if isinstance(dims, str) else list(dims)
        if len(names) != values.ndim or len(set(names)) != len(names):
            raise DimError(f"constant {name!r}: shape {values.shape} does not go by dims {names}")
        name = self._named(name, "constant")
        sizes = {dim: int(size) for dim, size in zip(names, values.shape, strict=True)}
        value = VTensor(from_numpy(values.dtype), sizes, Option(name=name))
        self.values[name] = value
        self.constants[name] = values
        return value

    @overload
    def add(
        self, op: OneOutput, *inputs: VTensor, name: str = "", outputs: Sequence[str] = ()
    ) -> VTensor: ...

    @overload
    def add(
        self, op: SeveralOutputs, *inputs: VTensor, name: str = "", outputs: Sequence[str] = ()
    ) -> tuple[VTensor, ...]: ...

    @overload
    def add(
        self, op: object, *inputs: VTensor, name: str = "", outputs: Sequence[str] = ()
    ) -> Any: ...

    def add(self, op: object, *inputs: VTensor, name: str = "", outputs: Sequence[str] = ()) -> Any:
        """Add a node: an operator applied to values of this graph.

        Args:
            op: an operator instance, ``Conv2D(strides=(2, 2))``.
            inputs: values of this graph.
            name: the node's name; by default the operator's name and a number, ``Conv2D:0``. Inside
                a scope, the scope's name is put in front of it.
            outputs: the output values' names; by default the node's name for the first, then
                ``name:1``, ``name:2``, ...

        Returns:
            The output VTensor; a tuple if the operator has several outputs. Type checkers see the
            return type of the operator's ``compute``.

        Raises:
            GraphError: an input belongs to another graph, or a name is taken, or given twice.
            DimError: the operator does not take these dims.
        """
        info = info_of(op)
        for value in inputs:
            if not isinstance(value, VTensor) or self.values.get(value.name) is not value:
                raise GraphError(f"{info.name}: {value!r} is no value of graph {self.name!r}")
        name = self._named(name, info.name)
        results = run_compute(Context(node=name, names=tuple(outputs)), op, inputs)
        self._insert(name, op, inputs, results)
        return results[0] if len(results) == 1 else results

    def add_made(
        self,
        op: object,
        inputs: Sequence[VTensor],
        made: Sequence[VTensor],
        name: str,
        outputs: Sequence[str],
    ) -> tuple[VTensor, ...]:
        """Add a node without running ``compute``, and return its output values.

        Args:
            op: an operator instance.
            inputs: values of this graph.
            made: outputs of the operator in an earlier call, on inputs with the same dims and
                element types; the new outputs have their dims and element types.
            name: the node's name.
            outputs: the output values' names.

        Raises:
            GraphError: a name is taken, or given twice.
        """
        ctx = Context(self._free(name), op=info_of(op).name, names=tuple(outputs))
        results = tuple(
            VTensor.as_known(v.dtype, dict(v.dims), ctx.output(i)) for i, v in enumerate(made)
        )
        self._insert(name, op, inputs, results)
        return results

    def _insert(
        self, name: str, op: object, inputs: Sequence[VTensor], results: Sequence[VTensor]
    ) -> None:
        """Add a node and its output values.

        Args:
            name: the node's name, which is known to be free.
            op: an operator instance.
            inputs: values of this graph.
            results: the output values.

        Raises:
            GraphError: an output's name is taken, or given twice.
        """
        output_names = tuple(value.name for value in results)
        for index, output in enumerate(output_names):
            if output != name:
                self._free(output)
            if output in output_names[:index]:
                raise GraphError(
                    f"{info_of(op).name} {name!r}: two of its outputs are named {output!r}; to "
                    "fix: give each a name of its own in outputs="
                )
        for value in results:
            self.values[value.name] = value
        input_names = tuple(value.name for value in inputs)
        self.nodes[name] = Node(name, op, label_of(op), input_names, output_names)

    def output(self, value: VTensor, name: str = "") -> None:
        """Make a value an output of the graph.

        Args:
            value: a value of this graph.
            name: the output's name; by default the value's.

        Raises:
            GraphError: ``value`` is no value of this graph, or the output's name is taken.
        """
        self._check_not_sealed()
        if not isinstance(value, VTensor) or self.values.get(value.name) is not value:
            raise GraphError(f"{value!r} is no value of graph {self.name!r}")
        if (name or value.name) in self.outputs:
            raise GraphError(f"graph {self.name!r} already has an output {name or value.name!r}")
        self.outputs[name or value.name] = value.name

    def seal(self) -> Graph:
        """Make the graph immutable and return it.

        Raises:
            GraphError: the graph has no output.
        """
        if not self.outputs:
            raise GraphError(f"graph {self.name!r} has no output: call output(value)")
        self.sealed = True
        return self

    @property
    def open_sizes(self) -> tuple[str, ...]:
        """The names of the open sizes of the inputs, sorted; empty if all sizes are known."""
        sizes = (size for name in self.inputs for size in self.values[name].dims.values())
        return tuple(sorted(open_names(sizes)))

    def with_sizes(self, sizes: Mapping[str, int]) -> Graph:
        """Return a sealed copy of the graph with numbers in place of its open sizes.

        Args:
            sizes: for each open size, by its name, the number.

        Raises:
            DimError: a number is missing, or an operator refuses the sizes.

        >>> from ops import Relu
        >>> g = Graph("tiny")
        >>> g.output(g.add(Relu(), g.input("x", {"N": None, "C": 3}), name="relu"))
        >>> g.with_sizes({"N": 2}).values["relu"].size("N")
        2
        """
        if missing := [name for name in self.open_sizes if name not in sizes]:
            raise DimError(f"graph {self.name!r}: no size is given for {', '.join(missing)}")
        graph = Graph(self.name)
        for name in self.inputs:
            value = self.values[name]
            dims = {dim: closed(size, sizes) for dim, size in value.dims.items()}
            graph.input(name, dims, value.dtype)
        graph.constants = copy(self.constants)
        graph.values.update((name, self.values[name]) for name in self.constants)
        for node in self.nodes.values():
            inputs = [graph.values[name] for name in node.inputs]
            graph.add(closed(node.op, sizes), *inputs, name=node.name, outputs=node.outputs)
        for alias, name in self.outputs.items():
            graph.output(graph.values[name], alias)
        return graph.seal()

    def delivering(self, names: Iterable[str]) -> Graph:
        """Return a sealed copy of the graph in which the values of these names are outputs, too.

        Each of these outputs has the name of its value. The present outputs stay.

        Raises:
            GraphError: there is no such value, or a present output of this name delivers another
                value.
        """
        asked = list(names)
        if unknown := [name for name in asked if name not in self.values]:
            raise GraphError(f"graph {self.name!r} has no value {', '.join(map(repr, unknown))}")
        outputs = {**dict(zip(asked, asked, strict=True)), **self.outputs}
        if conflicting := [name for name in asked if outputs[name] != name]:
            raise GraphError(f"outputs {', '.join(map(repr, conflicting))} deliver other values")
        return replace(self, outputs=outputs).seal()

    def to_networkx(self) -> nx.MultiDiGraph[str]:
        """Return the graph as a networkx graph, which has an edge for each input of each node.

        The edge attributes ``value`` and ``position`` are the value's name and its index among the
        node's inputs. The node attribute ``kind`` is ``input``, ``constant`` or ``node``. The
        attributes hold everything, so that ``from_networkx`` returns an equal graph.
        """
        import networkx as nx

        graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=self.name, outputs=dict(self.outputs))
        producer = {name: name for name in (*self.inputs, *self.constants)}
        for name in self.inputs:
            graph.add_node(name, kind="input", tensor=self.values[name])
        for name, array in self.constants.items():
            graph.add_node(name, kind="constant", tensor=self.values[name], array=array)
        for node in self.nodes.values():
            attributes = {"op": node.op_name, "operator": node.op, "outputs": node.outputs}
            graph.add_node(node.name, kind="node", **attributes)
            for position, value in enumerate(node.inputs):
                graph.add_edge(producer[value], node.name, value=value, position=position)
            producer.update(dict.fromkeys(node.outputs, node.name))
        return graph

    @classmethod
    def from_networkx(cls, graph: nx.MultiDiGraph[str]) -> Graph:
        """Return the graph, not sealed, that a networkx graph describes.

        Shapes are computed again, so an edited graph is checked like a new one.

        Args:
            graph: the result of ``to_networkx``, perhaps edited.

        Raises:
            GraphError: the networkx graph has a cycle, or lacks an attribute.
            DimError: an operator does not take its inputs.

        >>> from ops import Relu
        >>> g = Graph("tiny")
        >>> g.output(g.add(Relu(), g.input("x", {"N": 1, "C": 3}), name="relu"))
        >>> str(Graph.from_networkx(g.to_networkx())) == str(g)
        True
        """
        import networkx as nx

        built = cls(str(graph.name or "graph"))
        place = {name: index for index, name in enumerate(graph)}
        try:
            order = list(nx.lexicographical_topological_sort(graph, key=place.__getitem__))
            for name in order:
                built._add_networkx_node(name, graph.nodes[name], graph.in_edges(name, data=True))
            for alias, name in graph.graph["outputs"].items():
                built.output(built.values[name], alias)
        except nx.NetworkXUnfeasible as error:
            raise GraphError(f"{built.name}: the graph has a cycle") from error
        except KeyError as error:
            raise GraphError(f"{built.name}: attribute or value {error} is missing") from error
        return built

    @classmethod
    def parse(cls, text: str, constants: Mapping[str, np.ndarray[Any, Any]] | None = None) -> Graph:
        """Return the graph, not sealed, of a text: ``Graph.parse(str(g), g.constants) == g``.

        Args:
            text: a graph's text, as ``str(graph)`` returns it; ``vtensor/language/text.py`` has the
                grammar.
            constants: the constants' arrays by name, with their axes in the order of the dims.
                Single numbers may be in the text instead.

        Raises:
            GraphError: a line cannot be read; an operator is not registered or does not take its
                inputs; a type in the text differs from the one that the operator computes; or a
                constant's values are missing. The message names the line.

        >>> from ops import Relu
        >>> print(Graph.parse('''graph tiny
        ... input x : f32 N=1 C=3
        ... y = Relu() x : f32 N=1 C=3
        ... output y'''))
        graph tiny
        input x : f32 N=1 C=3
        y = Relu() x : f32 N=1 C=3
        output y
        """
        return parse_graph(text, constants or {}, cls())

    def _add_networkx_node(self, name: str, node: Mapping[str, Any], edges: Iterable[Any]) -> None:
        """Add the input, constant or node that one node of a networkx graph describes.

        Args:
            name: the name of the networkx node.
            node: the attributes of the networkx node.
            edges: the edges that end at the networkx node, with their attributes.
        """
        if node["kind"] == "input":
            self.input(name, node["tensor"].dims, node["tensor"].dtype)
        elif node["kind"] == "constant":
            self.constant(node["array"], list(node["tensor"].dims), name)
        else:
            operands = sorted((data["position"], data["value"]) for _, _, data in edges)
            inputs = [self.values[value] for _, value in operands]
            self.add(node["operator"], *inputs, name=name, outputs=node["outputs"])

    def _check_not_sealed(self) -> None:
        if self.sealed:
            raise GraphError(f"graph {self.name!r} is sealed; build a new one")

    def _free(self, name: str) -> str:
        """Return ``name`` after checking that no value and no node has it.

        Raises:
            GraphError: a value or a node has the name, or the graph is sealed.
        """
        self._check_not_sealed()
        if name in self.values or name in self.nodes:
            raise GraphError(f"graph {self.name!r} already has {name!r}")
        return name

    def _named(self, name: str, stem: str) -> str:
        """Return ``name``, or ``stem:0``, ``stem:1``, ... if it is empty, with the scope in front.

        The number after ``stem`` is the next one for which the name is free.

        Raises:
            GraphError: a value or a node has the name, or the graph is sealed.
        """
        if name:
            return self._free(self._scope + name)
        self._check_not_sealed()
        stem = self._scope + stem
        index = self._next.get(stem, 0)
        while f"{stem}:{index}" in self.values or f"{stem}:{index}" in self.nodes:
            index += 1
        self._next[stem] = index
        return f"{stem}:{index}"

    def __repr__(self) -> str:
        return f"<Graph {self.name!r} of {counted(len(self.nodes), 'node')}>"

    def __str__(self) -> str:
        return "\n".join(graph_lines(self))

    def __eq__(self, other: object) -> bool:
        """Return whether both graphs have the same text and the same bytes in their constants.

        The text has the names, the order, dims, element types, operators and their parameters.
        Whether a graph is sealed does not count.
        """
        if not isinstance(other, Graph):
            return NotImplemented
        return str(self) == str(other) and all(
            same_bytes(array, other.constants[name]) for name, array in self.constants.items()
        )

    __hash__ = None  # type: ignore[assignment]  # a graph can change until it is sealed


def same_bytes(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Return whether two arrays have the same type, shape and bytes; NaN of equal bytes are equal.

    >>> import numpy as np
    >>> same_bytes(np.array([np.nan]), np.array([np.nan])), same_bytes(np.zeros(1), -np.zeros(1))
    (True, False)
    """
    import numpy as np

    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    if (a.ctypes.data, a.strides) == (b.ctypes.data, b.strides):
        return True  # the same memory, which need not be read
    left, right = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (a, b))
    return np.array_equal(left, right)
