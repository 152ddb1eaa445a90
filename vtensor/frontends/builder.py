"""Builds a sealed ``Graph`` of a network, the facts about its values and its dim names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any

from optimizer.constants.originals import Original, Originals
from vtensor.errors import (
    ModelError,
    SegmentsNeededError,
    UnsupportedOperatorError,
    ValuesNeededError,
    VTensorError,
)
from vtensor.frontends.control import DECIDING, deciding, has_batch, undecided
from vtensor.frontends.folding import Facts, folds
from vtensor.frontends.functions import has_body, spellings_of
from vtensor.frontends.naming import Key, Names, NodeNaming, assign_names, local_names
from vtensor.frontends.network import Network, NetworkNode
from vtensor.frontends.reader import Added, NodeRefused, Reader, attribute_value
from vtensor.frontends.reference import reference_spelling
from vtensor.frontends.taken_names import TakenNames
from vtensor.frontends.tensors import Array, element_type
from vtensor.frontends.values import deciding_inputs, foldable, shape_makers, waits
from vtensor.language.dtype import from_numpy
from vtensor.language.graph import Graph
from vtensor.language.operators import OPERATORS, info_of
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass, replace
from vtensor.language.spelling import Spelling
from vtensor.language.tensor import Option, VTensor
from vtensor.language.traits import VIEWS


class SizesDiffer(ModelError):
    """Raised if the output of a VTensor operator has sizes that differ from ONNX's shape
    inference.
    """


@dataclass(eq=False)
class NamedNetwork:
    """A network with a name for each dim of its values; a model's graphs and ports are made of it.

    Attributes:
        network, facts: the network, and the types and values that are known.
        nodes: the nodes that a run computes, each with its ``NodeNaming``.
        names: the dim names of each value's axes, by the value's key: its name; a constant has a
            key for each node input that reads it.
        pinned: prescribed dim names of inputs and outputs.
    """

    network: Network
    facts: Facts
    nodes: list[tuple[NetworkNode, NodeNaming]]
    names: dict[Key, Names]
    pinned: Mapping[Key, Names] = field(default_factory=dict)

    def foresees(self, network: Network) -> bool:
        """Return whether these names, found for ``network`` with open sizes, hold for all sizes.

        True if no function call and no control flow of ``network`` was replaced by other nodes, and
        the rank of every value is known.
        """
        if self.network is not network:
            return False
        names = {name for node, _ in self.nodes for name in (*node.inputs, *node.outputs)}
        return all(self.facts.sizes(name) is not None for name in names)

    def without_facts(self) -> NamedNetwork:
        """Return a copy with empty facts.

        Facts hold only for the sizes that they were found for; network and names hold for others,
        too.
        """
        return replace(self, facts=Facts())


def attributes_of(node: NetworkNode, network: Network) -> Callable[[str, Any], Any]:
    """Return a function that reads a node's attributes, given a name and a default.

    The function returns the attribute's value, or the default if the node lacks the attribute.
    """
    table = {attribute.name: attribute for attribute in node.proto.attribute}

    def read(name: str, default: Any) -> Any:
        return attribute_value(table[name], network.files) if name in table else default

    return read


def name_values(
    network: Network,
    facts: Facts,
    pinned: Mapping[Key, Names] | None = None,
    *,
    every: bool = False,
) -> NamedNetwork:
    """Return the network with a dim name for each axis of all values that a run computes or is
    given.

    Args:
        network: the network.
        facts: the known types and values.
        pinned: prescribed dim names of a value's axes, by the value's name.
        every: whether to name the values that are computed before a run, too.

    Raises:
        ModelError: a node's ``Spelling`` fails, although the ranks of all its values are known.
    """
    ranks: dict[Key, int] = {}
    for name in network.inputs:
        ranks[name] = len(facts.sizes(name) or ())
    nodes = []
    for index, node in enumerate(network.nodes):
        if not every and folds(node, facts):
            continue
        keys: dict[str, Key] = {}
        for i, name in enumerate(node.proto.input):
            if name:
                keys[f"x{i}"] = (name, index, i) if name in facts.static else name
                ranks[keys[f"x{i}"]] = _rank(name, network, facts)
        for i, name in enumerate(node.proto.output):
            if name:
                keys[f"y{i}"] = name
                ranks[name] = _rank(name, network, facts)
        by_role = {role: ranks[key] for role, key in keys.items()}
        naming = NodeNaming(node.opset, keys, by_role, attributes_of(node, network))
        for spelling in spellings_of(node)[:1]:
            try:
                if spelling.rank is not None and not by_role.get("y0"):
                    ranks[keys["y0"]] = by_role["y0"] = spelling.rank(naming)
                spelling.names(naming)
            except Exception as error:
                pass_signals(error)
                if all(_has_rank(n, network, facts) for n in (*node.inputs, *node.outputs)):
                    raise _spelling_error(network, node, error) from error
        nodes.append((node, naming))
    names = assign_names(ranks, [naming for _, naming in nodes], pinned)
    return NamedNetwork(network, facts, nodes, names, pinned or {})


def _spelling_error(network: Network, node: NetworkNode, error: Exception) -> ModelError:
    """Return the error for a node whose ``Spelling`` has raised ``error``."""
    return ModelError(f"{network.label}: {node.described} cannot be read: {error}")


def _has_rank(name: str, network: Network, facts: Facts) -> bool:
    """Return whether the rank of value ``name`` is known, or the model declares its type."""
    return facts.sizes(name) is not None or name in network.declared


def _rank(name: str, network: Network, facts: Facts) -> int:
    """Return a value's rank: the inferred one; without it, the one that the model declares; else
    0.
    """
    sizes = facts.sizes(name)
    if sizes is None and name in network.declared:
        kind = network.declared[name]
        return len(kind.tensor_type.shape.dim) if kind.HasField("tensor_type") else 0
    return len(sizes or ())


@dataclass(eq=False)
class Problems:
    """Nodes that cannot be added to the graph; one error reports all of them.

    Attributes:
        missing: nodes whose operator VTensor lacks, by the operator's label.
        refused: (node, reason) of each node that no ``Spelling`` of its operator can read.
        later: (node, reason) of each node that needs to know a value that a run computes.
    """

    missing: dict[str, list[NetworkNode]] = field(default_factory=dict)
    refused: list[tuple[NetworkNode, str]] = field(default_factory=list)
    later: list[tuple[NetworkNode, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.missing or self.refused or self.later)

    def remain_with(self, known: Iterable[str], network: Network, facts: Facts) -> bool:
        """Return whether a problem remains if the values of the inputs ``known`` are given.

        A node that depends only on these inputs and on constants is then computed before a run, so
        it is no problem.
        """
        nodes = [node for missing in self.missing.values() for node in missing]
        nodes += [node for node, _ in self.refused]
        return not all(foldable(node, known, network, facts) for node in nodes)

    def error(self, network: Network, facts: Facts) -> UnsupportedOperatorError:
        """Return one error that lists all nodes: first ``missing``, then the others.

        If there are nodes in ``later``, the error asks for segments: the other problems may come
        from values that these nodes would compute.
        """
        opsets = ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in network.opsets.items())
        lines = [f"{network.label} (opset {opsets}) cannot be loaded"]
        if self.missing:
            lines.append(f"  VTensor does not have {len(self.missing)} of its operators:")
            for label, nodes in sorted(self.missing.items()):
                names = ", ".join(
                    f"{node.name} (of {origin.label})" if (origin := node.outermost) else node.name
                    for node in nodes
                )
                lines.append(f"    {label} : {len(nodes)} x, {names}")
        if self.refused or self.later:
            lines.append("  VTensor does not take these nodes:")
            refused = *self.refused, *self.later
            lines += [f"    {n.described} : {reason}" for n, reason in refused]
        if self.later:
            lines.append("  to fix: run it in a Session, which makes plans once values are known")
            later = {(node.outermost or node).name: bool(node.origin) for node, _ in self.later}
            return SegmentsNeededError("\n".join(lines), later, facts)
        lines.append("  to fix: export the model without them, or add the operators")
        return UnsupportedOperatorError("\n".join(lines))


class Builder:
    """Adds the nodes of a network to one graph.

    It is also the ``Values`` that each node's ``Reader`` takes the node's operands from.

    Args:
        named: the network with its names.
        reference: whether nodes whose operators VTensor lacks may run on ONNX's reference
            evaluator.
    """

    def __init__(self, named: NamedNetwork, reference: bool) -> None:
        self._named = named
        self._network = named.network
        self._facts = named.facts
        self._reference = reference
        self._origins = Originals()
        self._graph = Graph(named.network.name, constants=self._origins)
        self._data: dict[str, VTensor] = {}
        self._constants: dict[tuple[str, Names, tuple[int, ...]], VTensor] = {}
        self._renames: dict[tuple[str, Names], VTensor] = {}
        self._problems = Problems()
        self._needed: dict[str, None] = {}
        #: Whether the node that is read needs to know a value that a run computes.
        self._asks = False
        self._taken = TakenNames(
            [*named.network.value_names(), *(node.name for node in named.network.nodes)]
        )

    def build(self, outputs: Mapping[str, Names] | None = None) -> Graph:
        """Return the sealed graph.

        Args:
            outputs: dim names of the graph's outputs, by the output's name. An output without an
                entry keeps the dim names that its value has.

        Raises:
            UnsupportedOperatorError: some nodes cannot be added; the error lists all of them.
            ModelError: a value's shape depends on data.
            ValuesNeededError: the values of inputs decide shapes, and are not given.
        """
        for name, declared in self._network.inputs.items():
            if name in self._facts.arrays:
                continue  # an input whose value is given is a constant of this graph
            names = self._named.names[name]
            dims = self._dims(name, self._named.pinned.get(name, names))
            value = self._graph.input(name, dims, declared.dtype)
            # The body of a function or loop may declare that two dims of an input are one. The
            # nodes then read the input through a Rename, under names that agree with this.
            self._data[name] = self._with_names(value, names, name)
        self._nodes()
        if self._needed and not self._problems.remain_with(
            self._needed, self._network, self._facts
        ):
            raise self._values_needed(self._needed)
        if self._problems:
            raise self._problems.error(self._network, self._facts)
        for name in self._network.outputs:
            self._output(name, (outputs or {}).get(name))
        return self._graph.seal()

    def check_operators(self) -> None:
        """Check that each operator exists somewhere: in VTensor, in ONNX's reference evaluator, or
        as a function that other operators define.

        Sizes need not be known. Control flow is not looked into, and a node is left out if the
        values of inputs may make it unnecessary.

        Raises:
            UnsupportedOperatorError: some operators do not exist; the error lists their nodes.
        """
        for node, _ in self._named.nodes:
            known = (
                spellings_of(node)
                or node.label in DECIDING
                or has_body(node.domain, node.proto.op_type, node.opsets[node.domain])
                or self._deciding_inputs(node)
                or reference_spelling(node, self._network, self._facts)
            )
            if not known:
                self._problems.missing.setdefault(node.label, []).append(node)
        if self._problems:
            raise self._problems.error(self._network, self._facts)

    def _nodes(self) -> None:
        """Add every node of the named network to the graph."""
        for node, naming in self._named.nodes:
            self._node(node, naming)

    def origin(self, name: str) -> Array | Original | None:
        """Return constant ``name``: its array, or an ``Original``, which supplies it on demand.

        None if value ``name`` is no constant: a run computes it, or takes it as an input.
        """
        return self._facts.arrays.origins().get(name)

    def data(self, name: str) -> VTensor:
        """Return the graph's VTensor of value ``name``, for which ``origin`` returns None.

        Raises:
            ModelError: the node that computes the value was not added.
        """
        if name not in self._data:
            raise ModelError(
                f"{self._network.label}: value {name!r} cannot be known: it depends on a shape "
                "that is decided by data"
            )
        return self._data[name]

    def need(self, name: str) -> None:
        """Raise ValuesNeededError if value ``name`` would be known if the values of some inputs
        were.

        Known means: before a run. The error names these inputs of the model.
        """
        inputs = deciding_inputs(name, self._network, self._facts)
        if name in self._facts.static:
            inputs = inputs or [*self._needed]  # the value depends on sizes that these decide
        if inputs:
            raise self._values_needed(inputs)
        self._asks |= name in self._network.producers and name not in self._facts.static

    def _values_needed(self, names: Iterable[str]) -> ValuesNeededError:
        """Return the error that asks for the values of the inputs ``names``."""
        listed = ", ".join(map(repr, names))
        return ValuesNeededError(
            f"{self._network.label}: the values of the inputs {listed} decide shapes, or how "
            "operators work, so a graph is made for each; give them as values={name: array}, or "
            "let a Session do so",
            names,
        )

    def renamed(self, value: VTensor, names: Names) -> VTensor | None:
        """Return the output of an earlier Rename of ``value`` to the dims ``names``.

        None if there is no such Rename.
        """
        if self._graph.values.get(value.name) is not value:
            return None  # not in the graph yet: the name is temporary
        return self._renames.get((value.name, names))

    def _dims(self, name: str, names: Names) -> dict[str, int]:
        """Return the size of each dim of value ``name``, whose axes have the dim names ``names``.

        Raises:
            ModelError: a size is unknown.
        """
        sizes = self._facts.sizes(name)
        if sizes is None or None in sizes:
            raise ModelError(
                f"{self._network.label}: the shape of {name!r} is decided by data, or ONNX's shape "
                f"inference does not know it ({sizes or 'no rank'})"
            )
        return {dim: size or 0 for dim, size in zip(names, sizes, strict=True)}

    def _constant(self, name: str, origin: Array | Original, dims: Names) -> VTensor:
        """Return the graph's constant for value ``name`` with the dims ``dims``.

        The first call for this name and these dims adds the constant to the graph.
        """
        key = (name, dims, origin.shape)
        if key not in self._constants:
            free = name if name not in self._graph.values else self._taken.free(name)
            self._constants[key] = self._add_constant(origin, dims, free)
        return self._constants[key]

    def _add_constant(self, origin: Array | Original, dims: Names, name: str) -> VTensor:
        """Add a constant to the graph and return it; the array of an ``Original`` is not read."""
        if not isinstance(origin, Original):
            return self._graph.constant(origin, dims, name)
        sizes = dict(zip(dims, origin.shape, strict=True))
        value = self._graph.values[name] = VTensor(
            from_numpy(origin.dtype), sizes, Option(name=name)
        )
        self._origins.put(name, origin)
        return value

    def _node(self, node: NetworkNode, naming: NodeNaming) -> None:
        """Add the operators that an ONNX node becomes to the graph.

        The first ``Spelling`` that can read the node decides these operators. If none can, the
        reason is kept in ``_problems`` or ``_needed``, and graph inputs take the place of the
        node's outputs.

        Raises:
            VTensorError: a spelling fails, and no earlier node has a problem that could be the
                cause.
        """
        candidates = spellings_of(node)
        if not candidates and (inputs := self._deciding_inputs(node)):
            self._needed.update(dict.fromkeys(inputs))
            return self._add_stand_ins(node)
        if not candidates and waits(node, self._network, self._facts):
            self._problems.later.append((node, "its sizes are decided by computed values"))
            return self._add_stand_ins(node)
        if not candidates and self._reference:
            last = reference_spelling(node, self._network, self._facts)
            candidates = [last] if last else []
        if not candidates and node.label in DECIDING:
            if not self._needed:  # else the values of inputs may decide it
                found = self._problems.refused if has_batch(node) else self._problems.later
                found.append((node, undecided(node, self._facts)))
            return self._add_stand_ins(node)
        if not candidates:
            self._problems.missing.setdefault(node.label, []).append(node)
            return self._add_stand_ins(node)
        self._asks = False
        local = local_names(naming, self._named.names)
        reasons, needed = [], False
        for spelling in candidates:
            reader = Reader(node, naming.opset, local, self, naming.read_attribute)
            try:
                results = self._read(spelling, reader)
            except NodeRefused as refusal:
                reasons.append(str(refusal))
                continue
            except ValuesNeededError as error:
                self._needed.update(dict.fromkeys(error.names))
                needed = True
                continue
            except VTensorError as error:
                if isinstance(error, SizesDiffer) or not (self._problems or self._needed):
                    raise
                return self._add_stand_ins(node)  # an earlier node may be the cause
            return self._add_results(reader, results)
        if needed:
            return self._add_stand_ins(node)
        waiting = self._asks or any(spelling.counts for spelling in candidates)
        found = self._problems.later if waiting else self._problems.refused
        found.append((node, "; ".join(dict.fromkeys(reasons))))
        return self._add_stand_ins(node)

    def _deciding_inputs(self, node: NetworkNode) -> list[str]:
        """Return the names of the model's inputs whose values, if given, would make ``node``
        unnecessary.

        For control flow, these are the inputs whose values decide what it runs. If there are none,
        and for any other node, these are the inputs whose values make the node's outputs known
        before a run.
        """
        inputs = [
            deciding_inputs(name, self._network, self._facts)
            for name in deciding(node, self._facts)
        ]
        if inputs and all(inputs):
            return [name for names in inputs for name in names]
        return shape_makers(node, self._network, self._facts)

    def _read(self, spelling: Spelling, reader: Reader) -> dict[str, VTensor]:
        """Return a node's outputs as a ``Spelling`` reads them, by value name; unused outputs are
        left out.

        Their axes are in the model's order and have the dim names of the named network.

        Raises:
            SizesDiffer: the sizes of an output differ from those of ONNX's inference.
            ModelError: the spelling fails, or computes too few outputs.
        """
        node = reader.node
        try:
            read = spelling.read(reader)
        except VTensorError:
            raise
        except Exception as error:  # a fault of the spelling: the error names the node
            pass_signals(error)
            raise _spelling_error(self._network, node, error) from error
        if unread := reader.unread():
            raise reader.refuse(f"attribute {unread[0]!r} is unknown, or not supported with others")
        values = [read] if isinstance(read, VTensor) else list(read)
        results = {}
        for index, name in enumerate(node.proto.output):
            if name not in self._network.used:
                continue
            if index >= len(values):
                raise reader.refuse(f"output {index} ({name!r}) is used, and it is not computed")
            order, names = reader.output_names(index), self._named.names[name]
            if values[index].ndimensions() != len(names):
                raise self._shape_error(node, name, values[index])
            results[name] = reader.ordered(values[index], order, names)
            sizes = tuple(results[name].dims.values())
            expected = self._facts.sizes(name) or sizes
            if any(want not in (None, size) for want, size in zip(expected, sizes, strict=True)):
                raise self._shape_error(node, name, values[index])
        return results

    def _shape_error(self, node: NetworkNode, name: str, value: VTensor) -> SizesDiffer:
        """Return the error for output ``name`` of a node, whose sizes differ from ONNX's inference.

        ``value`` is the output as the operator in VTensor computes it.
        """
        return SizesDiffer(
            f"{self._network.label}: {node.described} gives {value.summary()}, but "
            f"{name!r} has the sizes {self._facts.sizes(name)} by ONNX's shape inference"
        )

    def _add_stand_ins(self, node: NetworkNode) -> None:
        """Add graph inputs in place of the outputs of a node that was not added.

        The nodes that read these outputs can then be checked, too, so that one error reports all
        problems.
        """
        for name in node.outputs:
            sizes, kind = self._facts.sizes(name), self._facts.types.get(name)
            if name not in self._network.used or sizes is None or None in sizes or kind is None:
                continue
            dims = self._dims(name, self._named.names[name])
            with suppress(ModelError):  # no stand-in if VTensor lacks the element type
                dtype = element_type(kind.tensor_type.elem_type, f"value {name!r}")
                self._data[name] = self._graph.input(name, dims, dtype)

    def _add_results(self, reader: Reader, results: Mapping[str, VTensor]) -> None:
        """Add to the graph those operators collected by a reader that the node's outputs need.

        Args:
            reader: the reader of the node.
            results: the node's outputs by value name.
        """
        needed = {id(value) for value in results.values()}
        used = []
        for added in reversed(reader.added):
            if any(id(value) in needed for value in added.outputs):
                used.append(added)
                needed.update(id(value) for value in added.inputs)
        used.reverse()
        names = {id(value): name for name, value in reversed(list(results.items()))}
        stems = self._node_names(reader.node, used, names)
        real = {
            key: self._constant(c.name, c.origin, tuple(c.value.dims))
            for key, c in reader.constants.items()
            if key in needed
        }
        for added, stem in zip(used, stems, strict=True):
            inputs = [real.get(id(value), value) for value in added.inputs]
            outputs = [
                names.get(id(value))
                or (self._taken.free(f"{stem}:{position}") if position else stem)
                for position, value in enumerate(added.outputs)
            ]
            values = self._graph.add_made(added.op, inputs, added.outputs, stem, outputs)
            real.update((id(v), new) for v, new in zip(added.outputs, values, strict=True))
            if added.names and id(added.outputs[0]) not in names:
                self._renames[(inputs[0].name, added.names)] = values[0]
        self._data.update((name, real.get(id(v), v)) for name, v in results.items())

    def _node_names(
        self, node: NetworkNode, added: Sequence[Added], names: Mapping[int, str]
    ) -> list[str]:
        """Return the names of the graph nodes that an ONNX node becomes, one for each operator in
        ``added``.

        The first operator that is no view gets the ONNX node's name. But if an output of the ONNX
        node has the node's name, the operator that computes this output gets it.

        Args:
            node: the ONNX node.
            added: its operators.
            names: the names of its outputs, by the ``id`` of their VTensors.
        """
        main = next((i for i, a in enumerate(added) if info_of(a.op).structural not in VIEWS), 0)
        if node.name in node.outputs:
            outputs = [[names.get(id(value)) for value in each.outputs] for each in added]
            main = next((i for i, row in enumerate(outputs) if node.name in row), len(added) - 1)
        return [
            node.name
            if i == main
            else self._taken.free(f"{node.name}:{info_of(a.op).name.lower()}")
            for i, a in enumerate(added)
        ]

    def _check_type(self, name: str, dtype: str) -> None:
        """Check that the model declares the element type ``dtype`` for output ``name``, or none.

        Declared sizes are not checked: a model that is given another batch still declares the old
        ones.

        Raises:
            ModelError: the types differ.
        """
        what = f"{self._network.label}: output {name!r}"
        kind = self._network.declared[name].tensor_type.elem_type
        declared = element_type(kind, what) if kind else dtype
        if declared != dtype:
            raise ModelError(f"{what} is declared {declared}, and what is computed is {dtype}")

    def _output(self, name: str, names: Names | None) -> None:
        """Add output ``name`` to the graph.

        ``names`` are the dim names of its axes; with None, the output keeps those of its value.

        Raises:
            ModelError: the output has another rank or type than the model declares.
        """
        origin = self.origin(name)
        rank = self.data(name).ndimensions() if origin is None else origin.ndim
        declares = self._network.declared[name].tensor_type.HasField("shape")
        if names is not None and len(names) != rank and not (names and declares):
            names = None  # ONNX's inference has a wrong rank, or the model declares a false scalar
        if names is not None and len(names) != rank:
            text = f"output {name!r} is declared with {len(names)} dims, and has {rank}"
            raise ModelError(f"{self._network.label}: {text} for these inputs")
        dtype = self.data(name).dtype if origin is None else from_numpy(origin.dtype)
        self._check_type(name, dtype)
        if origin is not None:
            dims = tuple(f"D{axis}" for axis in range(rank)) if names is None else names
            self._graph.output(self._constant(name, origin, dims), name)
            return
        value = self.data(name)
        self._graph.output(value if names is None else self._with_names(value, names, name), name)

    def _with_names(self, value: VTensor, names: Names, stem: str) -> VTensor:
        """Return a graph's value with its dims renamed to ``names``, axis by axis.

        A Rename is added if the names differ; ``stem`` begins its name.
        """
        if tuple(value.dims) == names:
            return value
        rename = OPERATORS.structural("rename").cls(tuple(zip(value.dims, names, strict=True)))
        renamed: VTensor = self._graph.add(rename, value, name=self._taken.free(f"{stem}:rename"))
        return renamed
