"""A choice and its symbolic plan, converted to the bytes of a cache entry and back.

An entry is JSON data. The small weights of a model are an entry of their own. The codec trusts
nothing that it reads: it checks each row, place (index on a trace), slot, element type and size as
native code checks any call.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.native_trace import ConstantReader, ConstantWriter, build_of, native_module
from ptensor.layout import Layout
from vtensor.errors import VTensorError
from vtensor.language.dtype import numpy_dtype
from vtensor.language.process.imported import blake2b, logger
from vtensor.language.records import replace
from vtensor.language.symbolic.rows import REFUSALS, Known, NotSaved, Rows, evaluated
from vtensor.language.symbolic.symbolic_arrays import StoredArray
from vtensor.runtime.cache.saved_table import (
    Builds,
    SavedTable,
    TableWriter,
    check_bytes,
    taken_of,
)
from vtensor.runtime.planning.choice import Choice
from vtensor.runtime.planning.keys import InputKey, PlanKey
from vtensor.runtime.planning.slots import Pieces, PlanNumbers, Slots
from vtensor.runtime.planning.symbolic_plan import (
    CallsOfKind,
    SymbolicConstant,
    SymbolicOutput,
    SymbolicPlan,
    SymbolicStep,
    SymbolicValue,
)
from vtensor.runtime.recording.workspace import Workspace
from vtensor.storage.entries import MOST_BYTES

if TYPE_CHECKING:
    from resolver.choice import ChosenGraph
    from resolver.lowered import LoweredGraph
    from vtensor.frontends.files.fingerprint import ModelFingerprint
    from vtensor.language.graph import Graph
    from vtensor.runtime.planning.options import Options
    from vtensor.runtime.planning.source import Source

Array = np.ndarray[Any, Any]
Data = dict[str, Any]

#: The most bytes of an entry's data (the digest is not counted), and of an entry of small weights
#: (the model's path is not counted).
MAX_PAYLOAD = MOST_BYTES - (1 << 13)

#: The most bytes of an array operand of a trace for which an entry has the elements themselves.
MAX_ARRAY_BYTES = 1 << 20

#: Upper bound of the planning time that is read from an entry, in seconds.
MAX_SECONDS = 60.0

_log = logger(__name__)


def payload_data(payload: bytes) -> Data:
    """Return the JSON data of an entry.

    Raises:
        ValueError: the payload is no JSON object.
    """
    data = json.loads(payload)
    if not isinstance(data, dict):
        raise ValueError("an entry is a table")
    return data


# --- writing


def encoded(
    name: str, choice: Choice, source: Source, options: Options
) -> tuple[bytes, dict[str, bytes]]:
    """Return the bytes of the entry for a choice and its plan, and entries of small weights by
    name.

    There is at most one entry of small weights. Its name is a digest of its bytes, so that choices
    of one model share it.

    Args:
        name: the name of the choice's entry.
        choice: a choice of this session.
        source: the model.
        options: the options that the choice was made with.

    Raises:
        NotSaved: no entry can hold the choice.
    """
    from resolver.choice_data import plain_data

    assert choice.decisions is not None, "a choice of this session has its decisions"
    lowered = choice.decisions.chosen
    certificate = lowered.certificate
    if lowered.inexact or (certificate is not None and certificate.status.startswith("failed")):
        raise NotSaved("errors hold for one set of weights, and a solver may do better")
    head: Data = {
        "name": name,
        "model": lowered.name,
        "file": source.file,
        "costs": _costs(options),
        "inputs": inputs_data(choice.key),
        "provisional": choice.provisional,
        "seconds": choice.seconds,
        "applied": sorted(choice.applied),
        "versions": versions_of(lowered),
        "chosen": plain_data(lowered),
        "weights": None,
        "plan": None,
    }
    blob, weights = b"", dict[str, bytes]()
    symbolic = choice.symbolic or (choice.later() if choice.later is not None else None)
    if symbolic is not None:
        try:
            head["plan"], blob = _plan_data(symbolic, source)
            if len(blob) > MAX_PAYLOAD:
                raise NotSaved("its small weights are too large")
        except NotSaved as why:
            head["plan"], blob = None, b""
            _log.debug("%s: its plan is recorded in each process: %s", name, why)
    if blob:
        head["weights"] = weights_name(blob)
        weights[head["weights"]] = source.file.encode(errors="surrogateescape") + b"\0" + blob
    text = json.dumps(head, separators=(",", ":")).encode()
    if len(text) > MAX_PAYLOAD:
        raise NotSaved("it is too large")
    return text, weights


def inputs_data(key: PlanKey) -> list[list[Any]]:
    """Return the inputs of a key as JSON data: for each input its name, shape and value.

    The value is in hex if it decides shapes, else None.
    """
    return [
        [
            input_key.name,
            [*input_key.shape],
            None if input_key.value is None else input_key.value.hex(),
        ]
        for input_key in key.inputs
    ]


def weights_name(blob: bytes) -> str:
    """Return the name of an entry of small weights: a digest of their bytes."""
    return f"weights-{blake2b(blob, digest_size=16).hexdigest()}"


def weights_of(name: str, payload: bytes | None) -> tuple[str, bytes]:
    """Return the path of the model and the small weights in an entry.

    Args:
        name: the name of the entry.
        payload: the content of the entry; None if it is missing.

    Raises:
        ValueError: the payload is no entry of small weights, or has another name.
    """
    file, _, blob = (payload or b"").partition(b"\0")
    if weights_name(blob) != name:
        raise ValueError("the entry of its small weights is missing, or holds others")
    return os.fsdecode(file), blob


def _weights(data: Data, read: Callable[[str], bytes | None]) -> bytes:
    name = data["weights"]
    return b"" if name is None else weights_of(name, read(name))[1]


def _costs(options: Options) -> str:
    """Return the kind of times that a choice with these options is based on: ``tuned``,
    ``measured`` or ``declared``.

    The text does not apply to a provisional choice, which is based on declared times.
    """
    if options.settings.clock is not None:
        return "tuned"
    return "declared" if options.settings.speeds is None else "measured"


def versions_of(graph: LoweredGraph) -> dict[str, str]:
    """Return, by name, the versions of the libraries on which the nodes of a lowered graph run.

    Raises:
        ChoiceRefused: a library is not installed.
    """
    from libdesc.registry import ready
    from resolver.choice import ChoiceRefused
    from resolver.lowered import OpNode

    known, versions = ready().libraries, dict[str, str]()
    for node in graph.nodes:
        name = node.variant.library if isinstance(node, OpNode) else node.library
        if name not in known or known[name].absent:
            raise ChoiceRefused(f"there is no library {name}")
        if name not in versions:
            versions[name] = known[name].version()
    return versions


def _plan_data(plan: SymbolicPlan, source: Source) -> tuple[Data, bytes]:
    """Return a symbolic plan as JSON data, and the bytes of its small weights.

    Raises:
        NotSaved: no entry can hold the plan.
    """
    traces = plan.traces
    if traces is None:
        raise NotSaved("it was read from the cache")
    if any(output.binding is None or output.constant is not None for output in plan.outputs):
        raise NotSaved("a constant is delivered")
    table = TableWriter(traces.weights, {id(o.whole): n for n, o in source.large.items()})
    for name in traces.alone:
        for constant in _constants_of(traces.graph, name):
            if table.is_large(constant):
                raise NotSaved(f"{name} may read {constant}")
    writer = ConstantWriter(traces.outer, _ArrayWriter(table))
    wanted = [set[int]() for _ in (plan.sizes, *plan.calls)]
    for number, place in plan.sources:
        wanted[number].add(place)
    for number, calls in enumerate(plan.calls, 1):
        wanted[0].update(calls.size_places)
        wanted[number].update(calls.natives)
    wanted[0].update(symbolic_constant.place for symbolic_constant in plan.symbolic)

    symbolic = {symbolic_constant.region for symbolic_constant in plan.symbolic}
    constants = [
        storage for region, storage in enumerate(plan.slots.constants) if region not in symbolic
    ]
    data: Data = {
        "sizes": writer.rows(plan.sizes.pruned(wanted[0])),
        "calls": [
            {
                "rows": writer.rows(calls.rows.pruned(places)),
                "given": [*calls.size_places],
                "natives": [*calls.natives],
            }
            for calls, places in zip(plan.calls, wanted[1:], strict=True)
        ],
        "sources": [*plan.sources],
        "memory": writer.rows(plan.memory),
        "fixed": [*plan.numbers.fixed],
        "steps": [
            [*step] if type(step) is SymbolicStep else writer.place(step) for step in plan.steps
        ],
        "counts": [*plan.slots.counts],
        "pieces": _pieces_data(plan.slots.pieces),
        "piece": plan.slots.piece.tolist(),
        "region": [*plan.slots.region],
        "begin": plan.slots.begin.tolist(),
        "held": plan.held.tolist(),
        "live": _pieces_data(plan.live),
        "guards": [*plan.guards],
        "inputs": [*map(_end_data, plan.inputs)],
        "own": [*map(_end_data, plan.own)],
        "outputs": [
            [output.alias, _end_data(output.end), output.binding] for output in plan.outputs
        ],
        "regions": len(plan.regions),
        "symbolic": [
            [symbolic_constant.region, symbolic_constant.place, _end_data(symbolic_constant.end)]
            for symbolic_constant in plan.symbolic
        ],
        "proven": plan.proven,
        "overflows": plan.overflows,
        "weights": table.data(constants),
    }
    data["outer"] = writer.outer_rows()
    modules = sorted(writer.modules | table.modules)
    data["builds"] = {name: build_of(native_module(name)) for name in modules}
    return data, bytes(table.blob)


class _ArrayWriter:
    """A function that converts an array operand of a trace to JSON data: the name of a model's
    array and the steps that derive the operand from it, or the offset of the operand's bytes.
    """

    def __init__(self, table: Any) -> None:
        self._table = table

    def __call__(self, array: Any) -> Data:
        if isinstance(array, StoredArray):
            origin: Any = array.origin
            name = self._table.array(origin)
            if name is not None:
                return {"array": [name, origin.steps]}
            array = array.now()
        if array.nbytes > MAX_ARRAY_BYTES or array.dtype.hasobject:
            raise NotSaved("a constant that depends on sizes is made of a large array")
        memory = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return {"bytes": [array.dtype.str, [*array.shape], self._table.save_bytes(memory)]}


def _constants_of(graph: LoweredGraph, node: str) -> list[str]:
    [reader] = [candidate for candidate in graph.nodes if candidate.name == node]
    return [name for name in reader.inputs if graph.values[name].constant]


def _pieces_data(pieces: Pieces) -> list[Any]:
    return [pieces.nbytes.tolist(), [*pieces.first], [*pieces.last]]


def _end_data(end: SymbolicValue) -> list[Any]:
    return [end.name, end.dtype, [*end.dims], str(end.layout), end.constant]


# --- reading


class SavedChoice(Choice):
    """A choice from the cache; its plan is decoded on first use, its nodes on first inspection.

    Args:
        data, blob: the JSON data of the entry, and the bytes of its small weights.
        key: the input key that the choice was made for.
        options: the session's options.
        fingerprint: the fingerprint of the model.
        workspace: the arena, weights and executors that plans share.
    """

    def __init__(
        self,
        data: Data,
        blob: bytes,
        key: PlanKey,
        options: Options,
        fingerprint: ModelFingerprint,
        workspace: Workspace,
    ) -> None:
        applied = frozenset((str(rule), str(node)) for rule, node in data["applied"])
        super().__init__(key, data["provisional"] is True, applied)
        self.cached = self.saved = True
        self.seconds = min(max(float(data["seconds"]), 0.0), MAX_SECONDS)
        self._data, self._options = data, options
        plan = data.pop("plan")
        self._plan = None if plan is None else _PlanReader(plan, blob, fingerprint, workspace)

    def plan_for(self, open_sizes: Sequence[int], known: Known) -> SymbolicPlan | None:
        if self.symbolic is None and self._plan is not None:
            if evaluated(self._plan.sizes, open_sizes, known) is None:
                return None
            reader, self._plan = self._plan, None  # a plan that cannot be read is not tried again
            try:
                self.symbolic = reader.plan()
            except MemoryError:
                raise
            except REFUSALS as why:
                _log.debug("a saved plan is not taken: %s", why)
        return self.symbolic

    def of(self, graph: Graph) -> ChosenGraph | None:
        if self.decisions is None and self._data:
            from optimizer.pipeline import PASSES
            from resolver.choice import ChoiceRefused, ChosenGraph
            from resolver.choice_data import from_plain_data

            data, options, self._data = self._data, self._options, {}
            passes = (*graph.passes, *(name for name in options.passes if name in PASSES))
            try:
                lowered = from_plain_data(
                    data.get("chosen"), graph, options.delivery, options.preferences, passes
                )
                if data.get("versions") != versions_of(lowered):
                    raise ChoiceRefused("its libraries were others")
                self.decisions = ChosenGraph.of(lowered)
                if lowered.certificate is not None:
                    chosen = replace(self.decisions.chosen, certificate=lowered.certificate)
                    self.decisions = ChosenGraph(chosen)
            except ChoiceRefused as why:
                _log.debug("%s: its choice is not taken: %s", graph.name, why)
        return self.decisions


def decoded(
    name: str,
    payload: bytes,
    read: Callable[[str], bytes | None],
    like: PlanKey,
    options: Options,
    fingerprint: ModelFingerprint,
    workspace: Workspace,
) -> Choice:
    """Return the choice of an entry.

    Args:
        name, payload: the name and the content of the entry.
        read: returns the content of another entry by name; None if it is missing.
        like: a key of the same inputs; it has the element types and layouts that the entry lacks.
        options: the session's options.
        fingerprint: the fingerprint of the model.
        workspace: the arena, weights and executors that plans share.

    Raises:
        ValueError, LookupError, TypeError: the payload is damaged, or belongs to another entry.
    """
    data = payload_data(payload)
    if data["name"] != name:
        raise ValueError("it is an entry of another name")
    blob = _weights(data, read)
    return SavedChoice(data, blob, _key(data["inputs"], like), options, fingerprint, workspace)


def _key(rows: list[Any], like: PlanKey) -> PlanKey:
    """Return the input key that a cache entry was made for.

    Args:
        rows: the rows of ``inputs_data``, from the entry.
        like: a key of the same inputs; it has the element types and layouts that the rows lack.

    Raises:
        ValueError, TypeError: the rows do not fit the inputs.
    """
    inputs = list[InputKey]()
    for known_key, (name, shape, value) in zip(like.inputs, rows, strict=True):
        if name != known_key.name or len(shape) != len(known_key.shape):
            raise ValueError(f"no input {name!r} of rank {len(shape)}")
        value_bytes = None if value is None else bytes.fromhex(value)
        inputs.append(replace(known_key, shape=tuple(map(int, shape)), value=value_bytes))
    return replace(like, inputs=tuple(inputs))


class _PlanReader:
    """A reader of the symbolic plan of an entry.

    Args:
        data, blob: the JSON data of the plan, and the bytes of its small weights.
        fingerprint: the fingerprint of the model.
        workspace: the arena, weights and executors that plans share.

    Attributes:
        sizes: the rows of the graph's trace, which has the sizes of the symbolic graph.
    """

    def __init__(
        self, data: Data, blob: bytes, fingerprint: ModelFingerprint, workspace: Workspace
    ) -> None:
        self._data, self._blob = data, np.frombuffer(blob, np.uint8)
        self._fingerprint, self._workspace = fingerprint, workspace
        self._builds = Builds(data["builds"])
        arguments = self._blob, self._builds, fingerprint, workspace
        self._weights = SavedTable(data["weights"], *arguments)
        self.sizes = Rows.of(data["sizes"], ConstantReader(self._builds.module, (), self._array))

    def plan(self) -> SymbolicPlan:
        """Return the plan, with its weights packed.

        Raises:
            Exception: one of ``REFUSALS``, if the data is damaged or this process cannot run it.
        """
        data, module = self._data, self._builds.module
        things = self._things(Rows.of(data["outer"], ConstantReader(module)))
        constant = ConstantReader(module, things, self._array)
        packed = [*self._packed()]
        symbolic = [
            SymbolicConstant(int(region), int(place), _end(*end))
            for region, place, end in data["symbolic"]
        ]
        empty = {symbolic_constant.region for symbolic_constant in symbolic}
        regions = [
            np.empty(0, np.uint8) if region in empty else packed.pop(0)
            for region in range(data["regions"])
        ]
        steps = [
            SymbolicStep(row[0], row[1], tuple(row[2])) if isinstance(row, list) else things[row]
            for row in data["steps"]
        ]
        slots = Slots(
            steps,
            data["counts"],
            _pieces(data["pieces"]),
            np.array(data["piece"], np.int64),
            data["region"],
            np.array(data["begin"], np.int64),
            (),
        )
        slots.check()
        return SymbolicPlan(
            self.sizes,
            [
                CallsOfKind(Rows.of(row["rows"], constant), row["given"], row["natives"], ())
                for row in data["calls"]
            ],
            [(int(source), int(place)) for source, place in data["sources"]],
            Rows.of(data["memory"], constant),
            PlanNumbers(data["fixed"]),
            steps,
            slots,
            np.array(data["held"], np.int64),
            _pieces(data["live"]),
            [
                (left, right, [(str(dim), int(at)) for dim, at in dims])
                for left, right, dims in data["guards"]
            ],
            [_end(*row) for row in data["inputs"]],
            [_end(*row) for row in data["own"]],
            [SymbolicOutput(alias, _end(*end), binding) for alias, end, binding in data["outputs"]],
            regions,
            symbolic,
            self._held(),
            data["proven"] is True,
            data["overflows"] is True,
        )

    def _things(self, outer: Rows) -> Sequence[Any]:
        """Return the native objects that depend on no size, in the order of their trace: an
        object's place on the trace is its index.

        Args:
            outer: the rows of that trace.

        Raises:
            ValueError: native code refuses a recorded call.
        """
        things = outer.run([])
        if things is None:
            raise ValueError("native code refuses a recorded call")
        return things

    def _packed(self) -> Sequence[Array]:
        """Return the packed memory of each constant that does not depend on sizes."""
        return self._weights.packed_regions()

    def _held(self) -> object:
        """Return an object that keeps the packed constants alive. While it lives, the session's
        weights count their bytes.
        """
        return self._workspace.weights.hold(self._weights.memory)

    def _large(self, name: str, steps: Sequence[Any]) -> Any:
        """Return an array operand of a trace that is derived from a large array of the model.

        Args:
            name: the name of the large array.
            steps: the changes of order and shape that derive the operand from that array.
        """
        return StoredArray(self._fingerprint.large[name].derived(steps))

    def _array(self, data: Data) -> Any:
        """Return an array operand of a trace; ``data`` is what ``_ArrayWriter`` made of it."""
        if "array" in data:
            return self._large(*data["array"])
        dtype, shape, offset = data["bytes"]
        nbytes = prod(shape) * np.dtype(dtype).itemsize
        return taken_of(self._blob, offset, nbytes).view(dtype).reshape(shape)


def check_plan(name: str, payload: bytes, read: Callable[[str], bytes | None]) -> None:
    """Check an entry of a plan as far as possible without the model and without compiling kernels.

    If another build of native code made the entry, its plan is not checked.

    Args:
        name, payload: the name and the content of the entry.
        read: returns the content of another entry by name; None if it is missing.

    Raises:
        Exception: one of ``MALFORMED``, if the entry is damaged.
    """
    data = payload_data(payload)
    if data["name"] != name:
        raise ValueError("it is an entry of another name")
    blob = _weights(data, read)
    if type(data["chosen"]) is not dict or type(data["versions"]) is not dict:
        raise ValueError("it has no choice")
    saved = data["plan"]
    if saved is not None and _same_builds(saved["builds"]):
        _DetachedReader(saved, blob).plan()


def _same_builds(data: Data) -> bool:
    """Return whether this process has the native modules of an entry, in the same builds.

    Args:
        data: the build of each module, by name.
    """
    builds = Builds(data)
    try:
        return all(builds.module(name) for name in data)
    except (ValueError, ImportError, VTensorError):
        return False


class _DetachedReader(_PlanReader):
    """A reader that checks a symbolic plan without its model.

    Placeholders stand for native objects, weights and large arrays.

    Args:
        data, blob: the JSON data of the plan, and the bytes of its small weights.
    """

    def __init__(self, data: Data, blob: bytes) -> None:
        nothing: Any = None
        super().__init__(data, blob, nothing, nothing)

    def _things(self, outer: Rows) -> Sequence[Any]:
        return [None] * outer.count

    def _packed(self) -> Sequence[Array]:
        table, packing = self._data["weights"]["table"], self._data["weights"]["packing"]
        check_bytes(table, self._blob.nbytes)
        for _, calls in packing:
            Rows.of(calls, ConstantReader(self._builds.module))
        return [np.empty(0, np.uint8) for _ in table]

    def _held(self) -> object:
        return None

    def _large(self, name: str, steps: Sequence[Any]) -> Any:
        if type(name) is not str:
            raise ValueError(f"{name!r:.80} is no array {steps!r:.80}")


def _pieces(row: Sequence[Any]) -> Pieces:
    nbytes, first, last = row
    return Pieces(np.array(nbytes, np.int64), first, last)


def _end(name: str, dtype: str, dims: Sequence[Any], layout: str, constant: bool) -> SymbolicValue:
    """Return an input, output or constant of a plan; the arguments are its data in an entry.

    Raises:
        ValueError, LookupError, VTensorError: the element type or layout does not exist.
    """
    numpy_dtype(dtype)
    return SymbolicValue(
        name, dtype, [(str(dim), int(at)) for dim, at in dims], Layout(layout), constant
    )
