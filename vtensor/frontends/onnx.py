"""ONNX in: a model's file, its bytes or its protocol buffer as a ``Graph``."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

import numpy as np

from libdesc.registry import ready
from vtensor.errors import (
    EdgesNeeded,
    InputError,
    ModelError,
    ValuesNeededError,
    VTensorError,
)
from vtensor.frontends.files.stored import stored_graph
from vtensor.frontends.network import InputType, Network, Source, read_network
from vtensor.frontends.tensors import Array, element_type, sizes_of
from vtensor.language.cached import cached_property
from vtensor.language.graph import Graph
from vtensor.language.process.imported import blake2b
from vtensor.language.process.interrupts import ignored
from vtensor.language.symbolic.sizes import OpenSize
from vtensor.language.symbolic.trace import Trace, number_of
from vtensor.language.tensor import MAX_BYTES
from vtensor.storage.budget import memory_errors
from vtensor.storage.inputs import Port, as_array, check_array

if TYPE_CHECKING:
    from vtensor.frontends.builder import NamedNetwork
    from vtensor.frontends.files.deferred_arrays import DeferredArrays
    from vtensor.frontends.naming import Key, Names

#: The size that takes the place of an open one when operators compute sizes. It is 2**5, since
#: networks for images halve sizes five times.
EXAMPLE_SIZE = 32

Shapes = Mapping[str, Sequence[SupportsIndex]]
Values = Mapping[str, Array]


@memory_errors()
def load_onnx(
    model: Source,
    *,
    shapes: Shapes | None = None,
    values: Values | None = None,
    reference: bool = True,
    max_bytes: int | None = None,
    external_data_root: str | os.PathLike[str] | None = None,
) -> Graph:
    """Read an ONNX model as a graph.

    Args:
        model: path of a file, its bytes, or a ModelProto.
        shapes: sizes of inputs, by the input's name; needed for each input that declares symbolic
            sizes. An initializer that is declared as an input as well becomes an input of the graph
            if it is named here.
        values: values of inputs, by the input's name; such an input becomes a constant. Needed for
            the inputs whose values decide shapes.
        reference: what happens to nodes whose operators VTensor lacks. True: ONNX's reference
            evaluator runs them, which is slow. False: an error is raised.
        max_bytes: limit of the constants that are computed, in bytes; None is a Session's default.
        external_data_root: the folder of the model's files of external data, as for a Session.

    Returns:
        The graph, sealed. Values have ONNX's names, and their dims the order of ONNX's axes. A
        model that ``export`` or ``save_onnx`` has written gives the graph that it was written from,
        with its own names and open sizes.

    Raises:
        ModelError: the model is missing, damaged, or not valid ONNX.
        UnsupportedOperatorError: VTensor cannot run some nodes; the error lists all of them.
        InputError: ``shapes`` names no input, contradicts the model, or leaves sizes open.
        ValuesNeededError: the values of inputs decide shapes, and are not in ``values``.
        BudgetError: a constant would take more memory than ``max_bytes``.

    >>> import onnx.parser
    >>> print(load_onnx(onnx.parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     tiny (float[batch, 3] x) => (float[batch, 3] y) { y = Relu(x) }
    ... '''), shapes={"x": (2, 3)}))
    graph tiny
    input x : f32 D0=2 D1=3
    y = Relu() x : f32 D0=2 D1=3 @ Relu:0
    output y

    Source: DESIGN.md, section 7.
    """
    limits: Any = {"max_bytes": max_bytes, "external_data_root": external_data_root}
    try:
        loaded = Model(model, reference, **limits)
    except EdgesNeeded:
        from vtensor.frontends.edges.model import Edges

        edges = Edges(cast(Any, model))
        if not edges.plain:
            raise
        loaded = Model(edges.core, reference, **limits)
    _check_mapping(shapes, "shapes")
    _check_mapping(values, "values")
    if named := loaded.overridable.keys() & {*(shapes or ()), *(values or ())}:
        loaded = loaded.overriding(named)
    if loaded.stored and not shapes and not values:
        graph = loaded.stored  # its sizes may be open
    else:
        graph = loaded.graph(shapes or {}, values)
    return replace(graph, constants={**graph.constants})  # the caller's arrays stay


class Model:
    """An ONNX model that is read and checked once, and makes a graph for each combination of sizes.

    Args:
        model: path of a file, its bytes, a ModelFile, or a ModelProto, which must not change
            afterwards.
        reference, max_bytes, external_data_root: the arguments of ``load_onnx``.
        earlier: the deferred arrays of an earlier read of the same bytes, which are used again.

    Raises:
        ModelError: the model is missing, damaged, or not valid ONNX.
    """

    def __init__(
        self,
        model: Source,
        reference: bool = True,
        *,
        max_bytes: int | None = None,
        external_data_root: str | os.PathLike[str] | None = None,
        earlier: DeferredArrays | None = None,
    ) -> None:
        self._reference = reference
        self._network = read_network(
            model, max_bytes=max_bytes, external_data_root=external_data_root, earlier=earlier
        )
        self._deciding: dict[str, None] = {}
        #: Whether VTensor's operators compute all sizes, because ONNX's inference was wrong before.
        self._own_sizes = False
        #: By a node's name, a text that says how the sizes of its operator differ from ONNX's
        #: inference.
        self.differences: dict[str, str] = {}
        self._earlier: dict[Hashable, NamedNetwork] = {}  # by ``_kind``
        ready()  # fills the registry, through which spellings are found
        stored = self._network.stored
        #: The text of the graph that the model carries, and that graph. Both are None if it carries
        #: no text; the graph is None also if it does not give the model's nodes when it is written
        #: as ONNX.
        self.text = stored
        self.stored = stored_graph(stored) if stored else None
        #: The model's arrays that are read on demand, or from other files.
        self.deferred = self._network.deferred

    @property
    def inputs(self) -> dict[str, tuple[str, tuple[int | None, ...] | None]]:
        """Element type and sizes of each input, by name.

        A symbolic size is None; the sizes are None instead of a tuple if no rank is declared.
        """
        return _kinds(self._network.inputs)

    @property
    def symbols(self) -> dict[str, tuple[int | str | None, ...] | None]:
        """Sizes of each input as the model declares them, by the input's name.

        A size is a number, the name of an open size, or None for an open size without a name.

        The sizes are None instead of a tuple if no rank is declared.
        """
        return {name: kind.sizes for name, kind in self._network.inputs.items()}

    @property
    def deciding(self) -> tuple[str, ...]:
        """Names of the inputs whose values decide shapes, as far as earlier calls of ``graph``
        found out.
        """
        return tuple(self._deciding)

    @property
    def static(self) -> bool:
        """True if the model itself decides every input's sizes."""
        return all(shape is not None and None not in shape for _, shape in self.inputs.values())

    @property
    def overridable(self) -> dict[str, tuple[str, tuple[int | None, ...] | None]]:
        """Element type and sizes of the initializers that are declared as inputs as well, by
        name.
        """
        return _kinds(self._network.overridable)

    def overriding(self, names: Collection[str]) -> Model:
        """Return a model in which the initializers ``names`` are inputs without a default.

        ``names`` are in ``overridable``. The result shares arrays and nodes with this model, but
        nothing that was computed from the defaults.
        """
        return self.part(self._network.overriding(names))

    @property
    def network(self) -> Network:
        """The model's nodes, constants, inputs and outputs."""
        return self._network

    def part(self, network: Network) -> Model:
        """Return a model of another network made of this one's nodes, with nothing computed."""
        model = copy(self)
        model._network = network
        model._deciding, model._earlier, model.differences = {}, {}, {}
        model.text = model.stored = None
        model._own_sizes = False
        model.__dict__.pop("_symbolic", None)
        return model

    def digest(self, within: str) -> str:
        """Return a digest, in hex, of what distinguishes the network from others that are parts of
        the same model.

        Args:
            within: the digest of the network that this one was cut from; empty if that is the
                model. Two graphs may call different constants alike; their own parts have these.
        """
        network = self._network
        digest = blake2b(digest_size=16)
        digest.update(repr((within, _kinds(network.inputs), [*network.outputs])).encode())
        for node in network.nodes:
            text = node.proto.SerializeToString(deterministic=True)
            digest.update(repr((node.name, sorted(node.opsets.items()), len(text))).encode())
            digest.update(text)
        return digest.hexdigest()

    def content(self) -> str:
        """Return a digest of the model whatever its sizes: of nodes, functions, and the bytes of
        constants.
        """
        from hashlib import sha256

        digest, network = sha256(self.digest("").encode()), self._network
        for function in network.functions.values():
            digest.update(function.SerializeToString(deterministic=True))
        for name in sorted({*network.arrays} & network.used - network.producers.keys()):
            array = network.arrays[name]
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return f"sha256:{digest.hexdigest()}"

    def graph(self, shapes: Shapes | None = None, values: Values | None = None) -> Graph:
        """Return the graph for given sizes of inputs, and for given values of some inputs.

        Raises:
            UnsupportedOperatorError: VTensor lacks operators of the model; the error lists all of
                them.
            InputError: ``shapes`` names no input, contradicts the model, or leaves sizes open.
            ModelError: shapes do not fit, or depend on data.
            ValuesNeededError: inputs' values decide shapes; ``deciding`` then names them.
        """
        _check_mapping(shapes, "shapes")
        _check_mapping(values, "values")
        try:
            return self._graph(shapes or {}, values or {})
        except ValuesNeededError as error:
            self._deciding.update(dict.fromkeys(error.names))
            raise

    def _graph(self, shapes: Shapes, values: Values) -> Graph:
        """Return the graph for given sizes and values of inputs.

        If an earlier graph has the same key ``_kind``, its dim names are used again.
        """
        checked = self._checked_values(values)
        sizes = self._bound_sizes(
            {**shapes, **{name: array.shape for name, array in checked.items()}}
        )
        if self.stored and not values:
            return self._with_sizes(self.stored, sizes)
        from vtensor.frontends.rebuild import rebuilt

        if self.static and not values:
            declared = {name: shape for name, (_, shape) in self.inputs.items()}
            return self._built(
                lambda: self._named(declared) if self._own_sizes else self._symbolic
            )[1]
        promised = self._promised()
        pinned: dict[Key, Names] = {
            port.name: port.of_rank(len(sizes[port.name])).dims for port in self._input_ports()
        }
        pinned.update(promised)
        kind = self._kind(sizes, checked)
        earlier = self._earlier.get(kind)
        if earlier is None and not values and self._symbolic.foresees(self._network):
            earlier = self._symbolic
        if earlier is not None:
            with ignored(Exception):  # the full build reports what is wrong
                graph = rebuilt(earlier, sizes, checked, self._reference, promised)
                self._earlier.setdefault(kind, earlier.without_facts())
                return graph
        named, graph = self._built(lambda: self._named(sizes, checked, pinned), promised)
        if (
            named.network is self._network
        ):  # else other sizes may expand functions or loops otherwise
            self._earlier[kind] = named.without_facts()
        return graph

    def _built(
        self, named_of: Callable[[], NamedNetwork], outputs: Mapping[str, Names] | None = None
    ) -> tuple[NamedNetwork, Graph]:
        """Name the dims of the network and build its graph.

        If the sizes of an operator in VTensor differ from those of ONNX's inference, names and
        graph are made again with the operators' sizes.

        Args:
            named_of: infers types and names dims; it returns the named network.
            outputs: dim names of the graph's outputs, by the output's name.

        Returns:
            The named network and its graph.
        """
        from vtensor.frontends.builder import Builder, SizesDiffer

        named = named_of()
        try:
            return named, Builder(named, self._reference).build(outputs)
        except SizesDiffer as error:
            if self._own_sizes:
                raise ModelError(str(error)) from None
        self._own_sizes = True
        return self._built(named_of, outputs)

    def traced(
        self,
        shapes: Mapping[str, Sequence[int]],
        values: Values,
        elements: Mapping[str, Sequence[int]],
        trace: Trace,
    ) -> Graph | None:
        """Return the graph as ``graph`` makes it, but for the symbolic sizes of a trace.

        None in three cases. The sizes contradict the model; ``graph`` reports this. A function or
        control flow is expanded, which may depend on sizes. Or the graph is that of the model's
        text (``stored``).

        Args:
            shapes: sizes of inputs, symbolic or not.
            values: values of inputs, which become constants.
            elements: for those of these values that have symbolic elements, their elements.
            trace: the trace of the symbolic sizes; rows are added to it.

        Raises:
            Exception: of any kind, if something cannot be traced.
        """
        checked = self._checked_values(values)
        sizes = {name: array.shape for name, array in checked.items()} | {**shapes}
        if self.stored:
            return None
        from vtensor.frontends.tracing import traced_graph

        alike = self._kind(sizes, checked)
        earlier = self._earlier.get(alike)
        if earlier is None and not values and self._symbolic.foresees(self._network):
            earlier = self._symbolic
        if earlier is None:
            numbers = {name: tuple(map(number_of, shape)) for name, shape in shapes.items()}
            self._graph({name: numbers[name] for name in shapes if name not in checked}, values)
            earlier = self._earlier.get(alike)
        if earlier is None:
            return None
        symbols: dict[str, int] = {}
        for name, kind in self._network.inputs.items():
            for declared, size in zip(kind.sizes or (), sizes[name], strict=bool(kind.sizes)):
                same = declared if isinstance(declared, int) else symbols.get(str(declared), size)
                if declared is not None and (same != size or size > MAX_BYTES):
                    return None  # ``graph`` says why
                symbols[str(declared)] = size
        known = checked, elements
        return traced_graph(earlier, sizes, known, self._reference, self._promised(), trace)

    def _kind(
        self, sizes: Mapping[str, Sequence[int]], values: Collection[str]
    ) -> tuple[frozenset[str], tuple[int, ...]]:
        """Return a key such that graphs with equal keys have the same dim names and nodes.

        The key holds the names of the inputs that have a value, and the ranks of the inputs for
        which the model declares no rank.
        """
        open_ranks = (name for name, kind in self._network.inputs.items() if kind.sizes is None)
        return frozenset(values), tuple(len(sizes[name]) for name in open_ranks)

    def _with_sizes(self, graph: Graph, shapes: Shapes) -> Graph:
        """Return ``graph`` with numbers from ``shapes`` in place of its inputs' open sizes."""
        sizes = {
            str(size): index(number)
            for name in graph.inputs
            for size, number in zip(graph.values[name].dims.values(), shapes[name], strict=True)
            if isinstance(size, OpenSize)
        }
        return graph.with_sizes(sizes) if sizes else graph

    def check_operators(self) -> None:
        """Check, before any size is known, that the operators of the model exist.

        Raises:
            UnsupportedOperatorError: some do not; the error lists their nodes.
        """
        from vtensor.frontends.builder import Builder

        Builder(self._symbolic, self._reference).check_operators()

    def ports(self) -> tuple[list[Port], list[Port]]:
        """Return the ports of the inputs and of the outputs.

        Every graph that ``graph`` returns has these dim names at its inputs and outputs.

        Raises:
            ModelError: an output's element type is unknown or not supported.
        """
        facts, promised, outputs = self._symbolic.facts, self._promised(), []
        for name in self._network.outputs:
            kind = facts.types.get(name) or self._network.declared[name]
            try:
                dtype = element_type(kind.tensor_type.elem_type, f"output {name!r}")
            except ModelError as error:
                raise ModelError(f"{self._network.label}: {error}") from None
            dims, shape = promised.get(name), facts.sizes(name)
            if shape is None:
                shape = (None,) * len(dims or ())
            outputs.append(Port(name, dtype, shape, dims or (), any_rank=dims is None))
        return self._input_ports(), outputs

    def _input_ports(self) -> list[Port]:
        """Return the ports of the inputs, with the dim names that all graphs have."""
        names = self._symbolic.names
        return [
            Port(name, dtype, shape or (), names[name], any_rank=shape is None)
            for name, (dtype, shape) in self.inputs.items()
        ]

    def _promised(self) -> dict[str, Names]:
        """Return the dim names of the outputs whose rank follows from the model alone, by output
        name.
        """
        facts = self._symbolic.facts
        promised = {}
        for name in self._network.outputs:
            sizes = facts.sizes(name)
            sizes = sizes_of(self._network.declared.get(name)) if sizes is None else sizes
            if sizes is not None:
                plain = tuple(f"D{axis}" for axis in range(len(sizes)))
                promised[name] = self._symbolic.names.get(name, plain)
        return promised

    @cached_property
    def _symbolic(self) -> NamedNetwork:
        """The named network for the sizes that the model declares, with symbolic sizes unknown."""
        return self._named({name: shape for name, (_, shape) in self.inputs.items()})

    def _named(
        self,
        sizes: Mapping[str, Sequence[int | None] | None],
        values: Mapping[str, Array] | None = None,
        pinned: Mapping[Key, Names] | None = None,
    ) -> NamedNetwork:
        """Return the network for given sizes of inputs, with its types inferred and its dims named.

        The sizes of values come from ONNX's inference. They come from VTensor's operators if ONNX's
        inference refuses the model, or if sizes of an operator have differed from it before.

        Args:
            sizes: the size of each axis of every input, None if open; None for an input of open
                rank.
            values: values of inputs that are known before a run.
            pinned: prescribed dim names of a value's axes, by the value's name.
        """
        from vtensor.frontends.builder import name_values
        from vtensor.frontends.expansion import infer
        from vtensor.frontends.folding import InputsRefused

        if not self._own_sizes:
            try:
                network, facts = infer(self._network, sizes, values)
            except InputsRefused as error:
                if not self._operators_accept(sizes, values):
                    raise ModelError(str(error)) from error.__cause__
                self._own_sizes = True
        if self._own_sizes:
            try:
                network, facts = infer(self._network, sizes, values, by_operators=True)
            except InputsRefused as error:
                raise ModelError(str(error)) from error.__cause__
        self.differences.update(facts.differences)
        return name_values(network, facts, pinned)

    def _operators_accept(
        self, sizes: Mapping[str, Sequence[int | None] | None], values: Mapping[str, Array] | None
    ) -> bool:
        """Return whether VTensor's operators accept sizes of inputs that ONNX's inference refuses.

        EXAMPLE_SIZE takes the place of each open size.
        """
        from vtensor.frontends.expansion import infer

        examples = {
            name: shape and [EXAMPLE_SIZE if size is None else size for size in shape]
            for name, shape in sizes.items()
        }
        try:
            infer(self._network, examples, values, by_operators=True)
        except VTensorError:
            return False
        return True

    def _checked_values(self, values: Values) -> dict[str, Array]:
        """Return the values of inputs as arrays.

        Raises:
            InputError: no input has a name that is given, or a value has another element type or
                shape than its input.
        """
        inputs = self.inputs
        unknown = [str(name) for name in values if name not in inputs]
        if unknown:
            have = ", ".join(inputs) or "none"
            raise InputError(f"values: no input {', '.join(map(repr, unknown))}; there are {have}")
        checked = {}
        for name, array in values.items():
            dtype, shape = inputs[name]
            dims = tuple(f"D{axis}" for axis in range(len(shape or ())))
            port = Port(name, dtype, shape or (), dims, any_rank=shape is None)
            checked[name] = check_array(as_array(f"input {name!r}", array), port)
        return checked

    def _bound_sizes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        """Return the sizes of all inputs, by the input's name.

        Those of an input that is not in ``shapes`` follow from what the model declares: numbers,
        and names of sizes that an input in ``shapes`` has as well.

        Raises:
            InputError: a size is missing or wrong, or there is no such input.
        """
        unknown = [str(name) for name in shapes if name not in self._network.inputs]
        if unknown:
            have = ", ".join(self._network.inputs) or "none"
            raise InputError(f"shapes: no input {', '.join(map(repr, unknown))}; there are {have}")
        symbols: dict[str, tuple[str, int]] = {}
        for name, shape in shapes.items():
            self._check_shape(name, shape, symbols)
        bound = {}
        for name, kind in self._network.inputs.items():
            given_shape = shapes.get(name)
            sizes: list[int] = []
            if kind.sizes is None and given_shape is None:
                raise InputError(
                    f"input {name!r} declares no rank; give its sizes, as in "
                    f"shapes={{{name!r}: (...)}} (--shape on the command line)"
                )
            declared_sizes = (None,) * len(given_shape or ()) if kind.sizes is None else kind.sizes
            for axis, size in enumerate(declared_sizes):
                if given_shape is not None:
                    size = index(given_shape[axis])
                elif isinstance(size, str) and size in symbols:
                    size = symbols[size][1]
                if not isinstance(size, int):
                    declared = _listed(declared_sizes)
                    raise InputError(
                        f"input {name!r} has symbolic sizes {declared}; "
                        f"give them, as in shapes={{{name!r}: (...)}} (--shape on the command line)"
                    )
                sizes.append(size)
            bound[name] = tuple(sizes)
        return bound

    def _check_shape(
        self, name: str, shape: Sequence[SupportsIndex], symbols: dict[str, tuple[str, int]]
    ) -> None:
        """Check that ``shape``, given for input ``name``, agrees with the shape that the model
        declares.

        The declared shape may have symbols. Each is added to ``symbols`` with (name of the first
        input that has it, its size).

        Raises:
            InputError: ``shape`` is no shape, or contradicts the declaration or an earlier input.
        """
        known = self._network.inputs[name].sizes
        declared = "of any rank" if known is None else _listed(known)
        if not isinstance(shape, Collection):
            raise InputError(f"input {name!r}: {shape!r} is not a sequence of sizes {declared}")
        sizes = (None,) * len(shape) if known is None else known
        if len(shape) != len(sizes):
            raise InputError(f"input {name!r}: shape {shape!r} was given, the model has {declared}")
        for size, have in zip(sizes, shape, strict=True):
            if not hasattr(have, "__index__") or not 0 <= index(have) <= MAX_BYTES:
                raise InputError(f"input {name!r}: {have!r} is no size: an integer, at least 0")
            if isinstance(size, int) and size != index(have):
                text = f"shape {tuple(shape)} was given, the model has {declared}"
                raise InputError(f"input {name!r}: {text}")
            if isinstance(size, str):
                other, bound = symbols.setdefault(size, (name, index(have)))
                if bound != index(have):
                    raise InputError(
                        f"input {name!r}: {size} is {have} here and {bound} in input {other!r}"
                    )


def _kinds(
    inputs: Mapping[str, InputType],
) -> dict[str, tuple[str, tuple[int | None, ...] | None]]:
    """Return the element type and sizes of each input, by name.

    A symbolic size is None; the sizes are None instead of a tuple if no rank is declared.
    """
    return {name: (kind.dtype, _numbers(kind.sizes)) for name, kind in inputs.items()}


def _numbers(sizes: Sequence[int | str | None] | None) -> tuple[int | None, ...] | None:
    """Return declared sizes with None for each symbol; None if no rank is declared."""
    return None if sizes is None else tuple(s if isinstance(s, int) else None for s in sizes)


def _listed(sizes: Sequence[int | str | None]) -> str:
    """Return declared sizes as text for errors."""
    return f"({', '.join('?' if s is None else str(s) for s in sizes)})"


def _check_mapping(given: object, what: str) -> None:
    """Check that argument ``what`` is a mapping or None; raise InputError if it is not."""
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"{what}={given!r} is not {{name: ...}}")
