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
from vtensor.language.sizes import OpenSize, closed, open_names
from vtensor.language.tensor import Option, VTensor
from vtensor.language.text import graph_lines, parse_graph
from vtensor.language.wording import counted

if TYPE_CHECKING:
    import networkx as nx
    import numpy as np

__all__ = ["ArrayLike", "Graph", "Node", "same_bytes"]


class ArrayLike(Protocol):
    """What a constant is given as: anything that NumPy can look at."""

    def __array__(self, dtype: Any = None, /) -> np.ndarray[Any, Any]:
        """The array."""


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

    Errors name the node, and nothing that failed is left in the graph.
    """

    name: str = "graph"
    values: dict[str, VTensor] = field(default_factory=dict)
    constants: MutableMapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    sealed: bool = False
    #: Nodes that a simplification took away, each with the node that does their work now.
    merged: dict[str, str] = field(default_factory=dict)
    #: By node, those behind it that a library may fuse to it: as many as it takes, in order.
    offers: Mapping[str, Sequence[Node]] = field(default_factory=dict)
    #: How often each rule was applied, by name.
    rewritten: Mapping[str, int] = field(default_factory=dict)
    #: Where they were applied: the rule, and the node that its pattern ended at.
    applied: Collection[tuple[str, str]] = frozenset()
    #: The simplifications that ran.
    passes: tuple[str, ...] = ()
    _scope: str = field(default="", init=False)
    _next: dict[str, int] = field(default_factory=dict, init=False)

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Put a name in front of all nodes and constants that are added inside; scopes nest.

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
        """Add an input: a value that every run is given.

        Args:
            name: its name.
            dims: sizes by name, in presentation order. A size of None is open: each run decides it,
                the same for every input whose dim of this name is open.
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
        """Add a value that is known now; the array is kept, not copied, and must not change.

        Args:
            array: the values; ``dims`` names its axes, in order.
            dims: ``"O I h w"`` or a sequence of names.
            name: ``constant:index`` when not given.

        Raises:
            DimError: the array has another rank than ``dims`` has names.
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
        """Apply an operator.

        Args:
            op: an operator instance, ``Conv2D(strides=(2, 2))``.
            inputs: values of this graph.
            name: the node's name; ``Op:index`` when not given. A scope goes in front of either.
            outputs: the output values' names; the node's name, then ``name:index`` when not given.

        Returns:
            The output VTensor, or a tuple where the operator has several outputs. For type checkers
            the type is that of its ``compute``.

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
        self._added(name, op, inputs, results)
        return results[0] if len(results) == 1 else results

    def add_made(
        self,
        op: object,
        inputs: Sequence[VTensor],
        made: Sequence[VTensor],
        name: str,
        outputs: Sequence[str],
    ) -> tuple[VTensor, ...]:
        """Apply an operator whose outputs on inputs of the same dims are known.

        Args:
            op: an operator instance.
            inputs: values of this graph.
            made: what the operator makes of inputs with the same dims and element types.
            name, outputs: as for ``add``; both are given.

        Raises:
            GraphError: a name is taken, or given twice.
        """
        ctx = Context(self._free(name), op=info_of(op).name, names=tuple(outputs))
        results = tuple(
            VTensor.as_known(v.dtype, dict(v.dims), ctx.output(i)) for i, v in enumerate(made)
        )
        self._added(name, op, inputs, results)
        return results

    def _added(
        self, name: str, op: object, inputs: Sequence[VTensor], results: Sequence[VTensor]
    ) -> None:
        """Take a node in whose name is free."""
        made = tuple(value.name for value in results)
        for index, output in enumerate(made):
            if output != name:
                self._free(output)
            if output in made[:index]:
                raise GraphError(
                    f"{info_of(op).name} {name!r}: two of its outputs are named {output!r}; to "
                    "fix: give each a name of its own in outputs="
                )
        for value in results:
            self.values[value.name] = value
        self.nodes[name] = Node(name, op, label_of(op), tuple(v.name for v in inputs), made)

    def output(self, value: VTensor, name: str = "") -> None:
        """Deliver a value from every run, under its own name or another."""
        self._open()
        if not isinstance(value, VTensor) or self.values.get(value.name) is not value:
            raise GraphError(f"{value!r} is no value of graph {self.name!r}")
        if (name or value.name) in self.outputs:
            raise GraphError(f"graph {self.name!r} already has an output {name or value.name!r}")
        self.outputs[name or value.name] = value.name

    def seal(self) -> Graph:
        """Make the graph immutable.

        Raises:
            GraphError: it delivers nothing.
        """
        if not self.outputs:
            raise GraphError(f"graph {self.name!r} has no output: call output(value)")
        self.sealed = True
        return self

    @property
    def open_sizes(self) -> tuple[str, ...]:
        """Names of the sizes that are open; empty where all are known."""
        sizes = (size for name in self.inputs for size in self.values[name].dims.values())
        return tuple(sorted(open_names(sizes)))

    def with_sizes(self, sizes: Mapping[str, int]) -> Graph:
        """The same graph with its open sizes decided, sealed.

        Raises:
            DimError: one of them is missing, or an operator does not take it.

        >>> from ops import Relu
        >>> g = Graph("tiny")
        >>> g.output(g.add(Relu(), g.input("x", {"N": None, "C": 3}), name="relu"))
        >>> g.with_sizes({"N": 2}).values["relu"].size("N")
        2
        """
        if missing := [name for name in self.open_sizes if name not in sizes]:
            raise DimError(f"graph {self.name!r}: no size is given for {', '.join(missing)}")
        made = Graph(self.name)
        for name in self.inputs:
            value = self.values[name]
            dims = {dim: closed(size, sizes) for dim, size in value.dims.items()}
            made.input(name, dims, value.dtype)
        made.constants = copy(self.constants)
        made.values.update((name, self.values[name]) for name in self.constants)
        for node in self.nodes.values():
            inputs = [made.values[name] for name in node.inputs]
            made.add(closed(node.op, sizes), *inputs, name=node.name, outputs=node.outputs)
        for alias, name in self.outputs.items():
            made.output(made.values[name], alias)
        return made.seal()

    def delivering(self, names: Iterable[str]) -> Graph:
        """The same graph, sealed, with these values among its outputs, under their own names.

        Raises:
            GraphError: there is no such value, or an output of this name delivers another.
        """
        asked = list(names)
        if unknown := [name for name in asked if name not in self.values]:
            raise GraphError(f"graph {self.name!r} has no value {', '.join(map(repr, unknown))}")
        outputs = {**dict(zip(asked, asked, strict=True)), **self.outputs}
        if taken := [name for name in asked if outputs[name] != name]:
            raise GraphError(f"outputs {', '.join(map(repr, taken))} deliver other values")
        return replace(self, outputs=outputs).seal()

    def to_networkx(self) -> nx.MultiDiGraph[str]:
        """Nodes and values as a networkx graph; edge attribute ``value`` is the value's name.

        Inputs and constants are nodes of kind ``input`` and ``constant``. Attributes hold
        the whole graph, so that ``from_networkx`` gives an equal one.
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
        """The graph, not sealed, that ``to_networkx`` (or an edit of its result) describes.

        Shapes are computed again, so an edited graph is checked like a new one.

        Raises:
            GraphError: it has a cycle, or lacks an attribute.
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
                built._take(name, graph.nodes[name], graph.in_edges(name, data=True))
            for alias, name in graph.graph["outputs"].items():
                built.output(built.values[name], alias)
        except nx.NetworkXUnfeasible as error:
            raise GraphError(f"{built.name}: the graph has a cycle") from error
        except KeyError as error:
            raise GraphError(f"{built.name}: attribute or value {error} is missing") from error
        return built

    @classmethod
    def parse(cls, text: str, constants: Mapping[str, np.ndarray[Any, Any]] | None = None) -> Graph:
        """The graph that a text describes, not sealed: ``Graph.parse(str(g), g.constants) == g``.

        Args:
            text: as ``str(graph)`` prints it; ``vtensor/language/text.py`` has the grammar.
            constants: the values of constants by name, their elements in the order of the dims.
                Single numbers may stand in the text instead.

        Raises:
            GraphError: a line cannot be read, an operator is not registered or does not take its
                inputs, a type is not what comes out, a constant's values are missing; it names
                the line.

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

    def _take(self, name: str, node: Mapping[str, Any], edges: Iterable[Any]) -> None:
        """Add one node of a networkx graph."""
        if node["kind"] == "input":
            self.input(name, node["tensor"].dims, node["tensor"].dtype)
        elif node["kind"] == "constant":
            self.constant(node["array"], list(node["tensor"].dims), name)
        else:
            given = sorted((data["position"], data["value"]) for _, _, data in edges)
            inputs = [self.values[value] for _, value in given]
            self.add(node["operator"], *inputs, name=name, outputs=node["outputs"])

    def _open(self) -> None:
        if self.sealed:
            raise GraphError(f"graph {self.name!r} is sealed; build a new one")

    def _free(self, name: str) -> str:
        self._open()
        if name in self.values or name in self.nodes:
            raise GraphError(f"graph {self.name!r} already has {name!r}")
        return name

    def _named(self, name: str, stem: str) -> str:
        """A name in the scope: the one that is given, else ``stem:index``."""
        if name:
            return self._free(self._scope + name)
        self._open()
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
        """True for the same text and the same bytes in the constants; sealed or not is no matter.

        So names, order, dims, element types, operators and their parameters are all compared.
        """
        if not isinstance(other, Graph):
            return NotImplemented
        return str(self) == str(other) and all(
            same_bytes(array, other.constants[name]) for name, array in self.constants.items()
        )

    __hash__ = None  # type: ignore[assignment]  # it changes until it is sealed


def same_bytes(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Two arrays of one type and shape hold the same bytes, so that NaN is the same as NaN.

    >>> import numpy as np
    >>> same_bytes(np.array([np.nan]), np.array([np.nan])), same_bytes(np.zeros(1), -np.zeros(1))
    (True, False)
    """
    import numpy as np

    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    if (a.ctypes.data, a.strides) == (b.ctypes.data, b.strides):
        return True  # the same memory, which need not be read
    one, other = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (a, b))
    return np.array_equal(one, other)
