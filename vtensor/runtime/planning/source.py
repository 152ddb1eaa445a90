"""The source of a session's graphs: a graph, or a model whose sizes may be open."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from optimizer.constants.originals import Original, Originals
from vtensor.errors import InputError, SegmentsNeededError, ValuesNeededError
from vtensor.language.index import importing
from vtensor.language.process.forks import OwnLock
from vtensor.language.symbolic.sizes import OpenSize, open_names
from vtensor.storage.budget import max_bytes_of
from vtensor.storage.inputs import Array, Port

if TYPE_CHECKING:
    from typing import TypeAlias

    import onnx

    from vtensor.frontends.files.deferred_arrays import DeferredArrays, Place
    from vtensor.frontends.files.fingerprint import ModelFingerprint
    from vtensor.frontends.files.model_file import ModelFile
    from vtensor.frontends.onnx import Model
    from vtensor.frontends.segments import Cut
    from vtensor.language.graph import Graph
    from vtensor.language.symbolic.trace import Trace
    from vtensor.runtime.planning.keys import PlanKey
    from vtensor.storage.entries import Entries

    Given: TypeAlias = str | os.PathLike[str] | bytes | onnx.ModelProto | Graph | Model
    Loaded: TypeAlias = tuple[Model | None, Graph | None]


#: The largest ModelProto that is cached, in bytes: each start serialises and hashes it.
MAX_PROTO_BYTES = 1 << 26

#: The largest unit of the distance between a size and a neighbour of it, in elements: networks
#: halve the size of an image five times.
MAX_STEP = 32

#: The distances of a size's neighbours, in units of the largest power of two that divides the size.
#: Several are tried, since a library may have another kernel only for some of them.
STEPS = (1, 2, -1, 3)


class Source:
    """A graph or a model, from which a graph is made for each combination of the open sizes.

    Args:
        model: the model or graph that a session is given.
        reference: True allows nodes to run on ONNX's reference evaluator.
        max_bytes: the most bytes of constants that may be computed while the model is loaded; None
            is the default limit.
        external_data_root: the folder that must contain files of external data.
        entries: the cache; None without one.
        expect: called with the number of bytes of the model's weights, if a plan that packs them is
            likely to follow.
        file: the file of ``model``, if that is a part of a model.

    Attributes:
        inputs, outputs: the ports of a run.
        waiting: the error that asks for segments, if the model cannot be loaded in one; else None.

    Raises:
        ModelError: the file is missing, is no ONNX, or uses what VTensor lacks.
    """

    def __init__(
        self,
        model: Given,
        reference: bool,
        max_bytes: int | None,
        external_data_root: str | os.PathLike[str] | None,
        entries: Entries | None = None,
        expect: Callable[[int], None] | None = None,
        file: ModelFile | None = None,
    ) -> None:
        self._expect = expect
        self.waiting: SegmentsNeededError | None = None
        if entries is not None:
            model = _as_bytes(model)
        self._given: Given | None = model
        self._file = file or _opened(model)
        self._reference, self._max_bytes = reference, max_bytes
        self._root, self._entries = external_data_root, entries
        self._deferred: DeferredArrays | None = None
        self._values: tuple[str, ...] = ()
        self._loading = OwnLock()
        self._loaded_once: Loaded | None = None
        #: The model, if initializers of it may be given other values.
        self._overridden: Model | None = None
        self._corrects = False
        #: Shapes of the last plan, and values of its inputs that decide shapes. That plan may have
        #: been made without a graph.
        self.seen: tuple[Mapping[str, tuple[int, ...]], Mapping[str, Array]] | None = None
        #: The fingerprint of the model, if an earlier process saved it.
        self.fingerprint = self._read_fingerprint()
        if self.fingerprint is None:
            self.inputs, self.outputs = self._ports(self._loaded)
        else:
            self.inputs, self.outputs = self.fingerprint.inputs, self.fingerprint.outputs

    def _read_fingerprint(self) -> ModelFingerprint | None:
        if self._file is None or self._entries is None:
            return None
        from vtensor.frontends.files.fingerprint import read_fingerprint

        limit = max_bytes_of(self._max_bytes)
        return read_fingerprint(self._file, self._reference, self._entries, limit, self._root)

    @property
    def file(self) -> str:
        """The absolute path of the model's file; empty if the model came from memory."""
        return "" if self._file is None else self._file.name

    @property
    def observed(self) -> frozenset[Place]:
        """Places, in the model's files, of the deferred arrays whose values were read."""
        return frozenset(self._deferred.observed if self._deferred is not None else ())

    def save_fingerprint(self, observed: frozenset[Place]) -> ModelFingerprint | None:
        """Save the fingerprint of the model unless the cache has it, and return it.

        Returns None if it cannot be saved.

        Args:
            observed: places, in the model's files, of the arrays that were read before a plan
                packed the weights.
        """
        if self._file is None or self._entries is None or self._deferred is None:
            return None
        deciding = self.deciding
        if (fingerprint := self.fingerprint) is not None:
            if observed <= fingerprint.observed and {*deciding} <= {*fingerprint.deciding}:
                return fingerprint
            observed |= fingerprint.observed
        from vtensor.frontends.files.fingerprint import ModelFingerprint, save_fingerprint

        ends = self.inputs, self.outputs
        fingerprint = ModelFingerprint(
            *ends, self.static, self.reads_nodes, deciding, observed, self._deferred
        )
        saved = save_fingerprint(fingerprint, self._file, self._reference, self._entries)
        self.fingerprint = saved or self.fingerprint
        return saved

    @property
    def large(self) -> Mapping[str, Original]:
        """The arrays of the model that are read from its files when needed, by name."""
        return self._deferred.later if self._deferred is not None else {}

    @property
    def _loaded(self) -> Loaded:
        if (loaded := self._loaded_once) is not None:
            return loaded
        with self._loading.here:  # another thread may load it meanwhile
            if self._loaded_once is None:
                from_cache = self.fingerprint is not None
                loaded = copy_context().run(self._load)
                if from_cache:
                    self._correct(loaded)
                self._loaded_once, self._given = loaded, None
            return self._loaded_once

    def corrected(self) -> bool:
        """Load the model, and take the inputs, the outputs and the inputs that decide shapes from
        it, not from the cache.

        Returns:
            True if the cache may have been wrong about them.
        """
        _ = self._loaded
        corrected, self._corrects = self._corrects, False
        if self.fingerprint is not None and self.fingerprint.deciding:
            self.fingerprint, corrected = replace(self.fingerprint, deciding=()), True
        return corrected

    def _correct(self, loaded: Loaded) -> None:
        """Take inputs and outputs from the model if those of the cached fingerprint differ from
        them.

        An output of the fingerprint may have more open sizes than that of the model: the sizes that
        a graph in an earlier process contradicted.

        Args:
            loaded: the model or the graph.
        """
        inputs, outputs = self._ports(loaded)
        is_same = len(outputs) == len(self.outputs) and all(map(_opens, self.outputs, outputs))
        if inputs != self.inputs or not is_same:
            self.inputs[:], self.outputs[:], self.fingerprint = inputs, outputs, None
            self._corrects = True

    def _load(self) -> Loaded:
        """Load what the session was given.

        Returns:
            (model, None) if each graph is made of the nodes of a model; (None, graph) if there is
            only one graph.
        """
        from vtensor.language.graph import Graph

        model, file, entries = self._given, self._file, self._entries
        earlier = self.fingerprint.deferred if self.fingerprint is not None else None
        if isinstance(model, Graph):
            return None, model if model.sealed else model.seal()
        if file is None or entries is None:
            self._file = None
        elif not file.part:
            from vtensor.frontends.files.saved_text import MOST_BYTES, read_known, save_known

            limit = max_bytes_of(self._max_bytes)
            known = read_known(file, entries, limit, self._root, earlier)
            if known is not None and _agree(earlier, known[1]):
                self._deferred = known[1]
                return None, _original(known[0])
            if file.held > MOST_BYTES:
                self._file = None
        with importing:  # forks wait for this lock
            from vtensor.frontends.files.lazy_onnx import defer

            defer()
            from vtensor.frontends.onnx import Model

        limits: Any = {"max_bytes": self._max_bytes, "external_data_root": self._root}
        assert model is not None, "a source is loaded once"
        if isinstance(model, Model):
            loaded = model
        else:
            loaded = Model(file or model, self._reference, **limits, earlier=earlier)
            if not _agree(earlier, loaded.deferred):  # the fingerprint has arrays elsewhere
                loaded, self.fingerprint = Model(file or model, self._reference, **limits), None
        self._deferred = loaded.deferred
        if loaded.overridable:
            self._overridden = loaded.overriding(())
        if self._expect is not None and self.fingerprint is None and self._deferred is not None:
            self._expect(sum(array.nbytes for array in set(self._deferred.later.values())))
        graph, text = loaded.stored, loaded.text
        if graph is not None and text is not None and file is not None and entries is not None:
            save_known(file, text, graph, entries)
        try:
            if graph is None and loaded.static:
                graph = loaded.graph({})
        except SegmentsNeededError as error:
            self.waiting = error
        except ValuesNeededError:
            pass  # runs make the plans then
        if graph is not None:
            return None, _original(graph)
        loaded.check_operators()
        return loaded, None

    @property
    def overridable(self) -> Collection[str]:
        """Names of the initializers that are inputs as well: a run may give them other values."""
        _ = self._loaded
        return self._overridden.overridable if self._overridden is not None else ()

    def overriding(self, names: Collection[str]) -> Source:
        """Return a source of the same model in which some initializers are inputs.

        Args:
            names: the names of initializers in ``overridable`` that become inputs.
        """
        assert self._overridden is not None, "only what is overridable is overridden"
        return self.part(self._overridden.overriding(names))

    def content(self) -> str:
        """Return a digest of the model whatever its sizes, for lock files."""
        assert self._model is not None, "only a model is cut"
        return self._model.content()

    def check_names(self, names: Iterable[str]) -> None:
        """Check that the model, or a graph of a node of it, has nodes of these names.

        Nodes that a node becomes, such as those of a function, begin with its name and a slash.

        Raises:
            InputError: there is no such node.
        """
        assert self._model is not None, "only a model is cut"
        nodes = self._model.network.nodes
        known = {node.name for node in nodes}.union(*(inner_names(node.proto) for node in nodes))
        for name in names:
            if name not in known and not any(name.startswith(f"{node}/") for node in known):
                raise InputError(
                    f"pin {name!r}: neither an operator nor a node of {self._model.network.name!r}"
                    f"\n  nodes there: {', '.join(sorted(filter(None, known)))}"
                )

    def cut(self, error: SegmentsNeededError) -> Cut:
        """Return the parts into which the model is cut; ``error`` says where.

        Raises:
            SegmentsNeededError: ``error`` itself, if its nodes need no value that a run computes.
        """
        from vtensor.frontends.segments import cut

        if self._model is None or (parts := cut(self._model, error.nodes, error.facts)) is None:
            raise error
        return parts

    def part(self, model: Model) -> Source:
        """Return a source of a part of the model."""
        file = self._file and replace(self._file, part=model.digest(self._file.part))
        options = self._reference, self._max_bytes, self._root, self._entries
        return Source(model, *options, file=file)

    @property
    def _model(self) -> Model | None:
        return self._loaded[0]

    @property
    def _graph(self) -> Graph | None:
        return self._loaded[1]

    @property
    def values(self) -> tuple[str, ...]:
        """Names of all values; empty for a model of open sizes before its first plan."""
        if not self._values and self.seen is not None:
            self.graph(*self.seen)
        return self._values or (tuple(self._graph.values) if self._graph else ())

    @property
    def static(self) -> bool:
        """True if all sizes are known before any run."""
        if self._loaded_once is None and self.fingerprint is not None:
            return self.fingerprint.static
        return self._graph is not None and not self._graph.open_sizes

    @property
    def reads_nodes(self) -> bool:
        """True if each graph is made of an ONNX model's nodes; False if of one graph."""
        if self._loaded_once is None and self.fingerprint is not None:
            return self.fingerprint.reads_nodes
        return not self.static and self._graph is None

    @property
    def deciding(self) -> tuple[str, ...]:
        """The names of inputs whose values are known to decide shapes."""
        known = self.fingerprint.deciding if self.fingerprint is not None else ()
        if self._loaded_once is None and self.fingerprint is not None:
            return known
        from_model = () if self.static or self._model is None else self._model.deciding
        return tuple(dict.fromkeys([*known, *from_model]))

    def graph(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        known: Mapping[str, Array],
        inner: Iterable[str] = (),
    ) -> Graph:
        """Return the graph for some input shapes.

        Args:
            shapes: the shapes, by input.
            known: the values of inputs that decide shapes, by input.
            inner: the names of values that are delivered in addition to the outputs.

        Raises:
            InputError: shapes contradict one another, or a value in ``inner`` does not exist.
            ValuesNeededError: the value of another input decides shapes.
        """
        graph = self._graph
        if self.waiting is not None and not known:
            raise self.waiting
        if graph is None:
            assert self._model is not None, "a source has a model or a graph"
            graph = self._model.graph(dict(shapes), dict(known))
        elif graph.open_sizes:
            graph = graph.with_sizes(_decided(graph, shapes))
        self._values = tuple(graph.values)
        self._correct_outputs(graph)
        names = tuple(inner)
        self.check_values(names)
        return graph.delivering(names) if names else graph

    def _correct_outputs(self, graph: Graph) -> None:
        """Declare an output's size as open if it differs from the size that this output has in
        ``graph``.
        """
        for place, port in enumerate(self.outputs):
            sizes = graph.values[graph.outputs[port.name]].dims.values()
            if len(sizes) != len(port.shape):
                self.outputs[place] = Port(port.name, port.dtype, (), (), any_rank=True)
            if self.outputs[place].any_rank:
                continue
            shape = tuple(
                s if s == have else None for s, have in zip(port.shape, sizes, strict=True)
            )
            if shape != port.shape:
                self.outputs[place] = replace(port, shape=shape)

    def open_sizes(
        self, shapes: Mapping[str, tuple[int, ...]], known: Collection[str]
    ) -> list[int]:
        """Return the values that ``shapes`` have for the open sizes, in the order of inputs and
        axes.

        Args:
            shapes: the shapes, by input.
            known: the names of inputs whose values decide shapes; their sizes are left out.
        """
        return [
            size
            for port in self._ports_of(shapes)
            if port.name not in known
            for declared, size in zip(port.shape, shapes[port.name], strict=True)
            if declared is None
        ]

    def open_of(self, key: PlanKey) -> list[int]:
        """Return what symbols stand for in plans for a key: the open sizes, then the open elements
        of values that decide shapes.
        """
        return [*self.open_sizes(key.shapes, key.known), *key.open_elements]

    def _ports_of(self, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Port]:
        """Yield the input ports; a port of any rank gets the rank of its shape in ``shapes``."""
        return (port.of_rank(len(shapes[port.name])) for port in self.inputs)

    def likely_shapes(
        self, shapes: Mapping[str, tuple[int, ...]], known: Collection[str]
    ) -> list[dict[str, tuple[int, ...]]]:
        """Return shapes whose symbolic plans are likely to serve other shapes.

        - The given shapes are among them if one of their open sizes is not 1.
        - If one of them is 1, the shapes with 2 in place of each such 1 are among them, and the
          shapes with 3.

        Guards of a plan for a size of 1 hold for no other size. 2 and 3 are both tried since the
        layout that a library prefers for weights may depend on what divides a size.

        Args:
            shapes: the shapes of a run, by input.
            known: the names of inputs whose values decide shapes.
        """
        sizes = self.open_sizes(shapes, known)
        likely = [{**shapes}] if any(size != 1 for size in sizes) else []
        if 1 in sizes:
            likely += [self._with(shapes, known, partial(_instead, more)) for more in (2, 3)]
        return likely

    def neighbour_shapes(
        self, shapes: Mapping[str, tuple[int, ...]], known: Collection[str]
    ) -> list[dict[str, tuple[int, ...]]]:
        """Return shapes with somewhat larger and smaller open sizes. The model may accept none of
        them.

        The first shapes change all open sizes that are not 1. If two or three dims have such sizes,
        further shapes change one dim at a time. They are worth trying since a library may have a
        kernel for some sizes and none for their neighbours. A neighbour of a size is divisible by
        two about as often as the size.

        Args:
            shapes: the shapes of a run, by input.
            known: the names of inputs whose values decide shapes.
        """
        names = dict.fromkeys(
            dim
            for port in self._ports_of(shapes)
            if port.name not in known
            for dim, declared, size in zip(port.dims, port.shape, shapes[port.name], strict=True)
            if declared is None and size != 1
        )
        groups = [[*names], *([dim] for dim in names)] if len(names) in (2, 3) else [[*names]]
        moved = [
            self._with(shapes, known, partial(_moved, frozenset(group), steps))
            for group in groups
            for steps in STEPS
        ]
        return [neighbour for neighbour in moved if neighbour != shapes]

    def _with(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        known: Collection[str],
        other: Callable[[str, int], int],
    ) -> dict[str, tuple[int, ...]]:
        """Return shapes with ``other(dim, size)`` in place of each open size.

        Args:
            shapes: the shapes, by input.
            known: the names of inputs whose values decide shapes; their shapes stay.
            other: takes the name of a dim and its size; returns the new size.
        """
        replaced = dict(shapes)
        for port in self._ports_of(shapes):
            if port.name not in known:
                rows = zip(port.dims, port.shape, shapes[port.name], strict=True)
                replaced[port.name] = tuple([other(n, s) if d is None else s for n, d, s in rows])
        return replaced

    def traced(self, key: PlanKey, trace: Trace) -> Graph | None:
        """Return the graph with symbols in place of open sizes and of open elements of values.

        Returns None if no such graph can be made of the model.

        Args:
            key: the key of a plan.
            trace: the trace to which the symbols are added.

        Raises:
            Exception: of any kind, if the graph cannot be traced.
        """
        shapes, known = key.shapes, key.known
        traced = map(trace.size, self.open_of(key))
        sizes = {
            port.name: tuple(
                next(traced) if declared is None and port.name not in known else size
                for declared, size in zip(port.shape, shapes[port.name], strict=True)
            )
            for port in self._ports_of(shapes)
        }
        if self._graph is None:
            assert self._model is not None, "a source has a model or a graph"
            elements = {
                row.name: [
                    next(traced) if is_open else element
                    for is_open, element in zip(
                        row.is_open, known[row.name].reshape(-1).tolist(), strict=True
                    )
                ]
                for row in key.inputs
                if any(row.is_open)
            }
            graph = self._model.traced(sizes, known, elements, trace)
        else:
            graph = self._graph.with_sizes(_decided(self._graph, sizes))
        names = key.inner
        return graph.delivering(names) if graph is not None and names else graph

    def check_values(self, wanted: Iterable[object]) -> None:
        """Check that the network has values of these names.

        Before the first plan of a model with open sizes its values are not known; any text is then
        accepted.

        Raises:
            InputError: no value has one of the names.
        """
        wanted, known = [*wanted], [port.name for port in self.outputs]
        if all(name in known for name in wanted):
            return
        values = self.values
        have = {*known, *values}
        unknown = [str(n) for n in wanted if not isinstance(n, str) or (values and n not in have)]
        if unknown:
            raise no_output(unknown, known)

    def wanted(self, outputs: Iterable[str] | None) -> list[str]:
        """Return the names of a run's results.

        Args:
            outputs: the requested names; None or an empty list requests all outputs.

        Raises:
            InputError: ``outputs`` is no list of names, or no value has one of the names.
        """
        known = [port.name for port in self.outputs]
        if outputs is None:
            return known
        if isinstance(outputs, str | bytes):
            raise InputError(f"outputs are given as a list of names: [{outputs!r}]")
        if not isinstance(outputs, Iterable):
            raise InputError(f"outputs={outputs!r} is no list of names; outputs are {known}")
        wanted = list(outputs)
        self.check_values(wanted)
        return wanted or known

    def _ports(self, loaded: Loaded) -> tuple[list[Port], list[Port]]:
        model, graph = loaded
        if graph is None:
            assert model is not None, "a source has a model or a graph"
            return model.ports()
        values = graph.values
        return (
            [_port(name, values[name]) for name in graph.inputs],
            [_port(alias, values[name]) for alias, name in graph.outputs.items()],
        )


def no_output(unknown: Iterable[str], known: Iterable[str]) -> InputError:
    """Return the error for names that no value has; ``known`` are those of the outputs."""
    text = f"no output {', '.join(unknown)}; outputs are {', '.join(known)}"
    return InputError(f"{text}, and session.values lists what else can be asked for")


def inner_names(node: Any) -> set[str]:
    """Return the names of the nodes in the graphs of an ONNX node, and in their graphs."""
    graphs = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    inner = [each for graph in graphs for each in graph.node]
    return {each.name for each in inner}.union(*map(inner_names, inner))


def _agree(earlier: DeferredArrays | None, later: DeferredArrays) -> bool:
    """Return whether the loaded model has its deferred arrays where an earlier cache entry says.

    Deferred arrays are those that are read from the model's files when needed. Returns True if
    there is no cache entry.

    Args:
        earlier: the deferred arrays of the cache entry; None without an entry.
        later: the deferred arrays of the loaded model.
    """
    if earlier is None:
        return True
    return earlier.places == {name: later.places[name] for name in later.later}


def _instead(more: int, _: str, size: int) -> int:
    """Return ``more`` in place of a size of 1, and any other size unchanged."""
    return more if size == 1 else size


def _moved(names: Collection[str], distance: int, dim: str, size: int) -> int:
    """Return a neighbour of ``size``: a somewhat larger or smaller size.

    Returns ``size`` itself if it is 1, if its dim is not in ``names``, or if the neighbour would
    not be above 0.

    Args:
        names: the dims whose sizes change.
        distance: the distance of the neighbour; negative for a smaller size. The unit is the
            largest power of two that divides the size, up to ``MAX_STEP``.
        dim, size: a dim and its size.
    """
    step = distance * min(size & -size, MAX_STEP)
    return size + step if dim in names and size != 1 and size + step > 0 else size


def _opens(port: Port, declared: Port) -> bool:
    """Return whether ``port`` equals ``declared``, except that more of its sizes may be open."""
    if port.any_rank:
        return (port.name, port.dtype) == (declared.name, declared.dtype)
    return replace(port, shape=declared.shape) == declared and all(
        size in (None, wanted) for size, wanted in zip(port.shape, declared.shape, strict=False)
    )


def _port(name: str, value: Any) -> Port:
    sizes = (None if isinstance(size, OpenSize) else size for size in value.dims.values())
    return Port(name, value.dtype, tuple(sizes), tuple(value.dims))


def _decided(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the value of each open size of a graph, by the name of the size.

    Args:
        graph: the graph.
        shapes: the shapes, by input.

    Raises:
        InputError: two inputs have different values for the size of one name. The message names
            both inputs.
    """
    decided: dict[str, tuple[int, str]] = {}
    for name, shape in shapes.items():
        for declared, size in zip(graph.values[name].dims.values(), shape, strict=True):
            for unknown in open_names([declared]):
                have, by = decided.setdefault(unknown, (size, name))
                if have != size:
                    raise InputError(f"{unknown} is {have} in input {by!r} and {size} in {name!r}")
    return {unknown: size for unknown, (size, _) in decided.items()}


def _opened(model: Given) -> ModelFile | None:
    """Return the opened file of a path or of bytes; None for a graph, a model or a proto."""
    if not isinstance(model, str | os.PathLike | bytes | None):
        return None
    from vtensor.frontends.files.model_file import opened

    return opened(model)


def _as_bytes(model: Given) -> Given:
    """Return a small ModelProto as bytes, which the cache can identify; else ``model`` itself."""
    count, serialize = (getattr(model, name, None) for name in ("ByteSize", "SerializeToString"))
    if count is None or serialize is None or count() > MAX_PROTO_BYTES:
        return model
    return bytes(serialize())


def _original(graph: Graph) -> Graph:
    """Return the graph with constants that can be released from memory and made again
    (``Original``).
    """
    return replace(graph, constants=Originals.of(graph.constants))
