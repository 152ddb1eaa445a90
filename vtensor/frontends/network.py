"""An ONNX model, read and checked for structure, whatever its operators are.

Any bytes give a ``Network`` or a ``ModelError``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TypeAlias

import onnx
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TypeProto,
    helper,
)

from optimizer.constants.originals import Original, Originals
from vtensor.errors import BudgetError, InputError, ModelError
from vtensor.frontends.calls import FunctionKey, check_functions, domain_of, graphs_of
from vtensor.frontends.edges.kinds import check_edges
from vtensor.frontends.files.constant_nodes import (
    external_tensors,
    own_nodes,
    take_in_tensors,
    without_constants,
)
from vtensor.frontends.files.deferred_arrays import DeferredArrays, Place
from vtensor.frontends.files.external import DataFiles, data_files
from vtensor.frontends.files.inline import Parts
from vtensor.frontends.files.model_file import ModelFile, opened
from vtensor.frontends.files.stored import StoredText, stored_text
from vtensor.frontends.tensors import (
    Array,
    check_rank,
    element_type,
    known_origin,
    place_of,
    sparse_array,
    tensor_origin,
)
from vtensor.language.cached import cached_property
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass, replace
from vtensor.storage.budget import max_bytes_of

Source: TypeAlias = str | os.PathLike[str] | bytes | ModelFile | ModelProto

#: Texts that exporters write for a size without a name. A text without letters and digits counts as
#: one, too.
_NAMELESS = ("none", "null", "unk", "unknown", "-1")


@dataclass(frozen=True)
class InputType:
    """The type that the model declares for an input.

    Attributes:
        dtype: element type.
        elem_type: ONNX's number of the element type.
        sizes: the size of each axis: a number, the name of a symbol, or None for neither. None
            instead of a tuple if no rank is declared.
    """

    dtype: str
    elem_type: int
    sizes: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class NetworkNode:
    """A node with a unique name.

    Attributes:
        name: the name. No other node has it; no value has it, except an output of this node.
        proto: the ONNX node.
        opsets: opset version by domain; for a node from a function's body, those that the function
            imports.
        origin: the node that this one and others have replaced, if it comes from a function or from
            control flow; None for the model's own nodes.
    """

    name: str
    proto: NodeProto
    opsets: Mapping[str, int] = field(default_factory=dict, compare=False)
    origin: NetworkNode | None = None

    @cached_property
    def domain(self) -> str:
        """Domain of the node's operator; empty for ONNX's own."""
        return domain_of(self.proto)

    @cached_property
    def label(self) -> str:
        """The operator, with the domain unless that is ONNX's own."""
        return f"{self.domain}::{self.proto.op_type}" if self.domain else self.proto.op_type

    @property
    def opset(self) -> int:
        """Version of ONNX's own operators for this node; 0 if none is imported."""
        return self.opsets.get("", 0)

    @cached_property
    def key(self) -> FunctionKey:
        """Key of the operator; in ``Network.functions`` if the model defines the operator."""
        return self.domain, self.proto.op_type, self.proto.overload

    @property
    def origins(self) -> Iterator[NetworkNode]:
        """The nodes that this one is a part of, the innermost first."""
        node = self.origin
        while node is not None:
            yield node
            node = node.origin

    @property
    def outermost(self) -> NetworkNode | None:
        """The model's own node that this one is a part of; None for a model's own node."""
        return next(reversed([*self.origins]), None)

    @cached_property
    def described(self) -> str:
        """Operator and name of this node, for errors.

        If the node comes from a function or control flow, the model's own node that it is a part of
        follows.

        >>> print(NetworkNode("a", NodeProto(op_type="Relu")).described)
        Relu 'a'
        """
        whole = self.outermost
        return f"{self.label} {self.name!r}" + (f" (of {whole.described})" if whole else "")

    @cached_property
    def inputs(self) -> list[str]:
        """Names of the inputs, without optional ones that are left out."""
        return [name for name in self.proto.input if name]

    @cached_property
    def outputs(self) -> list[str]:
        """Names of the outputs, without optional ones that are left out."""
        return [name for name in self.proto.output if name]

    @property
    def reads(self) -> set[str]:
        """Names of all values that the node reads, including the outer values that its graphs
        read.
        """
        return reads_of(self.proto)


@dataclass(frozen=True, eq=False)
class Network:
    """A model's graph: the nodes that outputs need, in an order in which they can run.

    Attributes:
        label: name of the model in errors.
        opsets: opset version by domain.
        arrays: the initializers, and values that were computed from them alone, by name.
        declared: types that the model itself declares, by the value's name.
        used: names of the values that a node or the caller reads.
        files: files of external data; None for a model from memory without a root.
        max_bytes: limit of the constants that are computed, in bytes.
        functions: the model's own functions.
        stored: the text of a graph that the model carries.
        deferred: the model's arrays that are read on demand, or from other files.
        folded: names of those ``arrays`` that were computed and take memory of their own.
        checked: names of the nodes that ONNX's checker has accepted.
        local: cached results of ``local_of``: dim names of a node's operands by role. The keys hold
            the node's name and the ranks of its values.
        computed: cached results of ``defined_outputs``: output arrays, or None if no operator of
            VTensor computes them.
        overridable: inputs that initializers give a default; they are not in ``inputs``.
    """

    label: str
    name: str
    files: DataFiles | None
    max_bytes: int
    ir_version: int
    opsets: Mapping[str, int]
    inputs: Mapping[str, InputType]
    outputs: Sequence[str]
    arrays: Originals
    nodes: Sequence[NetworkNode]
    declared: Mapping[str, TypeProto]
    used: frozenset[str]
    functions: Mapping[FunctionKey, FunctionProto]
    stored: StoredText | None = None
    deferred: DeferredArrays = field(default_factory=DeferredArrays)
    folded: set[str] = field(default_factory=set)
    checked: set[str] = field(default_factory=set)
    local: dict[Hashable, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    computed: dict[object, list[Array] | None] = field(default_factory=dict)
    overridable: Mapping[str, InputType] = field(default_factory=dict)

    def overriding(self, names: Collection[str]) -> Network:
        """Return the network as it was read, with ``names`` as inputs that have no default.

        ``names`` are in ``overridable``.
        """
        dropped = {*names, *self.producers}  # a folded value may depend on a default
        arrays = {name: a for name, a in self.arrays.origins().items() if name not in dropped}
        return replace(
            self,
            inputs={**self.inputs, **{name: self.overridable[name] for name in names}},
            arrays=Originals(arrays),
            stored=None,
            folded=set(),
            checked={*self.checked},
            local={},
            computed={},
            overridable={name: t for name, t in self.overridable.items() if name not in names},
        )

    @cached_property
    def producers(self) -> dict[str, NetworkNode]:
        """The node that computes a value, by the value's name."""
        return {name: node for node in self.nodes for name in node.outputs}

    def value_names(self) -> set[str]:
        """Return every name that a value has."""
        produced = (name for node in self.nodes for name in node.outputs)
        return {*self.inputs, *self.arrays, *produced}


def read_network(
    model: Source,
    *,
    max_bytes: int | None = None,
    external_data_root: str | os.PathLike[str] | None = None,
    earlier: DeferredArrays | None = None,
) -> Network:
    """Read a model and check its structure.

    Args:
        model: path of a file, its bytes, a ModelFile, or a ModelProto.
        max_bytes: limit of the constants that are computed, in bytes; None is a Session's default.
        external_data_root: folder of external data; None is the model's folder.
        earlier: the deferred arrays of an earlier read of the same bytes, which are used again.

    Raises:
        ModelError: the model is missing, no ONNX, cut short, or its graph is inconsistent.
        BudgetError: external data or sparse initializers take more than ``max_bytes``.
    """
    proto, label, path, parts = _proto(model)
    root = None if external_data_root is None else _path(external_data_root)
    budget = max_bytes_of(max_bytes)
    have, files = ({}, None) if earlier is None else (earlier.later, earlier.files)
    files = files or data_files(path, root, budget)
    try:
        return _network(proto, parts, label, files, budget, have)
    except MemoryError:
        raise
    except BudgetError as error:
        raise BudgetError(f"{label}: {error}") from None
    except ModelError as error:
        raise type(error)(f"{label}: {error}") from error.__cause__
    except Exception as error:  # malformed bytes: names that are no text, numbers out of range, ...
        pass_signals(error)
        raise ModelError(f"{label} is no valid ONNX model: {error}") from error


def _path(given: str | os.PathLike[str]) -> Path:
    """Return the folder of external data as a path.

    Raises:
        InputError: ``given`` is no path.
    """
    if not isinstance(given, (str, os.PathLike)) or "\0" in str(given):
        raise InputError(f"external_data_root={given!r} is no path")
    return Path(given)


def _proto(model: Source) -> tuple[ModelProto, str, Path | None, Parts]:
    """Return (model as ONNX parses it, its name in errors, its path, its bytes as ``Parts``).

    For a ModelProto, the path is None and the ``Parts`` are empty.

    Raises:
        ModelError: the model cannot be parsed.
    """
    if isinstance(model, ModelProto):
        label = f"model {model.graph.name or 'from memory'!r}"
        if any(external_tensors(own_nodes(model))):  # the caller's object must not change
            copy = ModelProto()
            copy.CopyFrom(model)
            model = copy
        return model, label, None, Parts(b"", {}, 0)
    file = model if isinstance(model, ModelFile) else opened(model)
    parts, label = file.parts, file.label
    try:
        return ModelProto.FromString(parts.rest), label, file.path, parts
    except Exception as error:  # protobuf's DecodeError, or other errors of some versions
        pass_signals(error)
        raise ModelError(
            f"{label} is no ONNX model, or is cut short ({parts.size} bytes): {error}"
        ) from error


def _network(
    proto: ModelProto,
    parts: Parts,
    label: str,
    files: DataFiles | None,
    max_bytes: int,
    have: Mapping[str, Original],
) -> Network:
    """Return the network of a parsed model.

    Args:
        proto: the model.
        parts: the model's bytes: the raw data of large weights, and the rest, which was parsed.
        label: name of the model in errors.
        files: files of external data; None for a model from memory without a root.
        max_bytes: limit of the constants that are computed, in bytes.
        have: the deferred arrays of an earlier read, by name; they are used again.

    Raises:
        ModelError: the model is inconsistent.
        BudgetError: external data or sparse initializers take more than ``max_bytes``.
    """
    if not proto.HasField("graph"):
        raise ModelError("it has no graph; it is no ONNX model, or it is cut short")
    opsets = _opsets(proto)
    check_edges(proto)
    check_functions(proto)
    graph = proto.graph
    _check_text(graph.name, *(entry.domain for entry in proto.opset_import))
    for named in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        _check_text(named.name)
    arrays: dict[str, Array | Original] = {}
    places: dict[str, Place] = {}
    for number, tensor in enumerate(graph.initializer):
        name = tensor.name
        if name in arrays:
            raise ModelError(f"two initializers are called {name!r}")
        arrays[name] = known_origin(name, tensor, have) or tensor_origin(
            tensor, files, parts.data.get(number)
        )
        if isinstance(array := arrays[name], Original):
            places[name] = place_of(tensor, array.nbytes) or ("", number)
    _add_sparse(graph, arrays, files, max_bytes)
    computing = without_constants(graph, parts, files, opsets, have, arrays, places)
    later = {name: array for name in places if isinstance(array := arrays[name], Original)}
    inputs = _inputs(graph, arrays)
    outputs = [value.name for value in graph.output]
    if not outputs:
        raise ModelError("its graph delivers no output")
    if len(set(outputs)) != len(outputs):
        raise ModelError(f"an output is delivered twice: {', '.join(outputs)}")
    origins = Originals.of(arrays)
    nodes, used = running_nodes(computing, {*inputs, *arrays}, outputs, opsets)
    take_in_tensors((node.proto for node in nodes), files)
    for function in proto.functions:
        take_in_tensors(function.node, files)
    declared = {}
    for value in (*graph.value_info, *graph.output):
        check_rank(len(value.type.tensor_type.shape.dim), f"value {value.name!r}")
        declared[value.name] = TypeProto.FromString(value.type.SerializeToString())
    return Network(
        label,
        graph.name or "graph",
        files,
        max_bytes,
        proto.ir_version,
        opsets,
        inputs,
        outputs,
        Originals({name: origin for name, origin in origins.origins().items() if name in used}),
        nodes,
        declared,
        frozenset(used),
        {(domain_of(f), f.name, f.overload): f for f in proto.functions},
        stored_text(proto, opsets.get("", 0), origins, parts),
        DeferredArrays(later, places, files),
        overridable=_overridable(graph, arrays),
    )


def _add_sparse(
    graph: GraphProto,
    arrays: dict[str, Array | Original],
    files: DataFiles | None,
    max_bytes: int,
) -> None:
    """Add the sparse initializers of a graph to ``arrays`` as dense arrays.

    Raises:
        ModelError: a tensor has no name or that of another initializer, or is inconsistent.
        BudgetError: the dense arrays take more than ``max_bytes`` together.
    """
    for sparse in graph.sparse_initializer:
        name = sparse.values.name
        _check_text(name)
        if not name or name in arrays:
            raise ModelError(f"two initializers are called {name!r}, or a sparse one has no name")
        arrays[name] = sparse_array(sparse, files, max_bytes)
        max_bytes -= arrays[name].nbytes


def versions(imports: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    """Return the version of each domain; the newest one if a domain is imported twice.

    Raises:
        ModelError: a domain is no text, or a version does not fit in 32 bits.
    """
    opsets: dict[str, int] = {}
    for entry in imports:
        _check_text(entry.domain)
        if entry.version.bit_length() > 31:
            raise ModelError(f"there is no version {entry.version} of domain {entry.domain!r}")
        opsets[domain_of(entry)] = max(entry.version, opsets.get(domain_of(entry), entry.version))
    return opsets


def _opsets(proto: ModelProto) -> dict[str, int]:
    """Return the version of each domain that a model imports.

    Raises:
        ModelError: the installed onnx does not know a version, or the model imports none.
    """
    if not 1 <= proto.ir_version <= onnx.IR_VERSION:
        raise ModelError(
            f"IR version {proto.ir_version} is not among 1 to {onnx.IR_VERSION}, "
            f"which onnx {onnx.__version__} reads"
        )
    opsets = versions(proto.opset_import)
    newest = onnx.defs.onnx_opset_version()
    if not opsets:
        raise ModelError("it imports no operator set; it is no ONNX model, or it is cut short")
    if "" in opsets and not 1 <= opsets[""] <= newest:
        raise ModelError(
            f"opset {opsets['']} is not among 1 to {newest}, which onnx {onnx.__version__} knows"
        )
    return opsets


def _inputs(graph: GraphProto, arrays: Collection[str]) -> dict[str, InputType]:
    """Return the inputs that the caller must give to a run, by name: those without an initializer.

    Raises:
        ModelError: an input has no name or the same name as another input, or is no tensor of a
            supported type.
    """
    inputs: dict[str, InputType] = {}
    for value in graph.input:
        if value.name in arrays:
            continue
        if not value.name or value.name in inputs:
            raise ModelError(f"two inputs are called {value.name!r}, or one has no name")
        what = f"input {value.name!r}"
        if not value.type.HasField("tensor_type"):
            raise ModelError(f"{what} is no tensor (a sequence, an optional, ...)")
        kind = value.type.tensor_type
        dtype = element_type(kind.elem_type, what)
        if not kind.HasField("shape"):
            inputs[value.name] = InputType(dtype, kind.elem_type, None)
            continue
        check_rank(len(kind.shape.dim), what)
        sizes: list[int | str | None] = []
        for dim in kind.shape.dim:
            fixed = (
                dim.HasField("dim_value") and dim.dim_value >= 0
            )  # some exporters write -1 for a symbol
            sizes.append(dim.dim_value if fixed else _symbol(dim.dim_param))
        inputs[value.name] = InputType(dtype, kind.elem_type, tuple(sizes))
    return inputs


def _overridable(graph: GraphProto, arrays: Mapping[str, Array | Original]) -> dict[str, InputType]:
    """Return the inputs that an initializer gives a default, with the types that they declare.

    If the declared type is one that no input may have, or contradicts the default, the input has
    the type and sizes of its default.
    """
    inputs: dict[str, InputType] = {}
    for value in graph.input:
        if (default := arrays.get(value.name)) is None:
            continue
        elem_type = helper.np_dtype_to_tensor_dtype(default.dtype)
        with suppress(ModelError):  # no input if its default is an array of strings
            kind = InputType(element_type(elem_type, value.name), elem_type, tuple(default.shape))
            inputs[value.name] = kind
            declared = _inputs(GraphProto(input=[value]), ())[value.name]
            sizes = declared.sizes
            if sizes is not None and (declared.elem_type, len(sizes)) == (elem_type, default.ndim):
                inputs[value.name] = declared
    return inputs


def _symbol(name: str) -> str | None:
    """Return a declared size's name if equal names mean equal sizes; None for a placeholder.

    Exporters write one placeholder for all sizes that they do not know; these need not be equal.

    >>> _symbol("batch"), _symbol("unk__7"), _symbol("?"), _symbol("None")
    ('batch', 'unk__7', None, None)
    """
    nameless = name.lower() in _NAMELESS or not any(map(str.isalnum, name))
    return None if nameless else name


def reads_of(node: NodeProto) -> set[str]:
    """Return the names of all values that a node reads, including outer values that its graphs
    read.
    """
    reads = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in graphs_of(attribute):
            inside = {value.name for value in (*graph.input, *graph.initializer)}
            inside.update(sparse.values.name for sparse in graph.sparse_initializer)
            inside.update(name for each in graph.node for name in each.output)
            read = {value.name for value in graph.output}
            reads |= read.union(*(reads_of(each) for each in graph.node)) - inside
    return reads


def needed(
    nodes: Sequence[NetworkNode], outputs: Iterable[str]
) -> tuple[list[NetworkNode], set[str]]:
    """Return (nodes, names): the nodes that ``outputs`` need, and the values that are read.

    The nodes are in the order in which they can run.

    Args:
        nodes: nodes in an order in which they can run.
        outputs: names of the values that are delivered; they count as read.
    """
    used, needed_nodes = set(outputs), []
    for node in reversed(nodes):
        if used.intersection(node.outputs):
            used |= node.reads
            needed_nodes.append(node)
    return needed_nodes[::-1], used


def running_nodes(
    protos: Sequence[NodeProto],
    given: set[str],
    outputs: Sequence[str],
    opsets: Mapping[str, int],
    origin: NetworkNode | None = None,
    prefix: str = "",
) -> tuple[list[NetworkNode], set[str]]:
    """Return (nodes, names): the nodes that ``outputs`` need, and the values that are read.

    The nodes are in an order in which they can run.

    Args:
        protos: ONNX nodes in any order.
        given: names of the values that no node computes.
        outputs: names of the values that are delivered.
        opsets: version by domain.
        origin: the node that these nodes are a part of: their names begin with its name and a
            slash. None for the model's own nodes.
        prefix: what their names have after that slash, before their own names.

    Raises:
        ModelError: a value is defined twice or nowhere, or a node has a domain without a version.
    """
    producer: dict[str, int] = {}
    nodes = [NodeProto.FromString(node.SerializeToString()) for node in protos]
    for index, node in enumerate(nodes):
        _check_text(node.name, node.op_type, node.domain, *node.input, *node.output)
        _check_text(*(attribute.name for attribute in node.attribute))
        _spell_plainly(node)
        if not opsets.get(domain_of(node)):
            raise ModelError(
                f"node {node.name or index!r} ({node.op_type}) is of domain {node.domain!r}, "
                "for which the model imports no operator set"
            )
        for name in node.output:
            if name and (name in producer or name in given):
                raise ModelError(f"value {name!r} is defined twice")
            if name:
                producer[name] = index
    for name in outputs:
        if name not in producer and name not in given:
            raise ModelError(f"output {name!r} is defined nowhere")
    stem = f"{origin.name}/{prefix}" if origin else ""
    named = _with_unique_names(nodes, _running_order(nodes, producer, given), given, stem)
    return needed([NetworkNode(name, node, opsets, origin) for name, node in named], outputs)


def _spell_plainly(node: NodeProto) -> None:
    """Change a node, and all graphs inside of it, to the spelling that ONNX's tools know.

    ONNX's own domain becomes the empty name, the only one that its checker and inference know.
    Sparse initializers become ``Constant`` nodes.
    """
    if node.domain:
        node.domain = domain_of(node)
    for attribute in node.attribute:
        for graph in graphs_of(attribute):
            for sparse in graph.sparse_initializer:
                name = sparse.values.name
                _check_text(name)
                graph.node.append(helper.make_node("Constant", [], [name], sparse_value=sparse))
            del graph.sparse_initializer[:]
            for inner in graph.node:
                _spell_plainly(inner)


def _check_text(*texts: object) -> None:
    """Raise ModelError if a name is no text.

    Protocol buffers return bytes for invalid UTF-8.
    """
    for text in texts:
        if not isinstance(text, str):
            raise ModelError(f"the name {text!r} is not valid UTF-8")


def _running_order(
    nodes: Sequence[NodeProto], producer: Mapping[str, int], given: set[str]
) -> list[int]:
    """Return the indices of the nodes in an order in which they can run.

    It is the file's own order if that is valid.

    Args:
        nodes: the nodes.
        producer: index of the node that defines each value.
        given: names of the values that no node computes.

    Raises:
        ModelError: a value is defined nowhere, or the nodes form a cycle.
    """
    in_order = True
    for index, node in enumerate(nodes):
        for name in sorted(reads_of(node) - given):
            if name not in producer:
                label = node.name or f"{node.op_type}:{index}"
                raise ModelError(f"node {label!r} reads {name!r}, which is defined nowhere")
            in_order = in_order and producer[name] < index
    if in_order:
        return list(range(len(nodes)))
    import networkx as nx

    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(nodes)))
    for index, node in enumerate(nodes):
        graph.add_edges_from((producer[n], index) for n in reads_of(node) if n in producer)
    try:
        return list(nx.lexicographical_topological_sort(graph))
    except nx.NetworkXUnfeasible:
        cycle = [nodes[source] for source, _ in nx.find_cycle(graph)]
        names = ", ".join(n.name or n.output[0] for n in cycle)
        raise ModelError(f"its graph has a cycle through the nodes {names}") from None


def _with_unique_names(
    nodes: Sequence[NodeProto], order: Iterable[int], given: set[str], prefix: str
) -> Iterator[tuple[str, NodeProto]]:
    """Yield (unique name, node) for each node, in the order ``order``.

    A name is ``prefix`` followed by the node's own name, or by ``op_type:index`` if the node has
    none. No value has the same name, except an output of the node.
    """
    taken, counts = set[str](), dict[str, int]()
    values = {name for node in nodes for name in node.output}
    for index in order:
        node = nodes[index]
        name = stem = prefix + (node.name or f"{node.op_type}:{index}")
        count = counts.get(stem, 0)
        while name in taken or ((name in given or name in values) and name not in node.output):
            count += 1
            name = f"{stem}:{count}"
        taken.add(name)
        counts[stem] = count
        yield name, node
