"""Plans on disk as they run: steps, places and weights, for a model that is known.

An entry is kept under a digest of all that its plan depends on: the model but for its large arrays,
whose values nothing was chosen by, what the session was told, libraries and processor. It holds no
code and no address. Native code looks at each call that makes a step, and at each place, as it does
when a plan is made; what it refuses, what does not fit or is damaged is made anew. The plan's nodes
are made of the strategy beside it where somebody looks at them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.own import only_own
from libdesc.script import build_of, made_by, native_module
from optimizer.computed import Taken, cut, multiplied, times
from ptensor.buffer import Buffer, TensorStorage
from ptensor.layout import Layout
from resolver.values import Value
from vtensor.isa import isa_cap
from vtensor.language.dtype import exponent
from vtensor.language.imported import blake2b, logger
from vtensor.runtime.all_of import all_of
from vtensor.runtime.delivery import Delivery
from vtensor.runtime.drawn import Brought, DrawnPlan, Placed
from vtensor.runtime.entries import Entries
from vtensor.runtime.executor import Executor
from vtensor.runtime.options import Options
from vtensor.runtime.processors import processor
from vtensor.runtime.weights import LARGE, Packed, clear_subnormals
from vtensor.runtime.workspace import Workspace

if TYPE_CHECKING:
    from types import ModuleType

    from optimizer.originals import Original
    from vtensor.frontends.surface import Surface
    from vtensor.runtime.keys import PlanKey
    from vtensor.runtime.plan import Plan

Array = np.ndarray[Any, Any]
Data = dict[str, Any]

#: What an entry says whose plan is not to be taken any more.
REPLACED = "replaced"

#: The kinds of slots of a step that packs a weight, beside scratch, which is its bytes.
SOURCE, TARGET = "source", "target"

_log = logger(__name__)


class KeptPlan(DrawnPlan):
    """A plan as it was kept.

    Args:
        given: as for ``DrawnPlan``.
        program: the entry.
        memory: its weights.
    """

    def __init__(self, *given: Any, program: Program, memory: Array) -> None:
        super().__init__(*given)
        del self.anew  # nodes say it
        self._entry, self._memory = program, memory

    @property
    def applied(self) -> frozenset[tuple[str, str]]:
        """Where rules were applied to the graph that it is of."""
        return self._entry.applied

    @property
    def chosen(self) -> bytes:
        """The entry of the strategy that it was made of."""
        return self._entry.chosen

    def lend(self) -> None:
        """Let plans of nodes have its weights, as long as somebody has this or one of those."""
        self._entry.lend(self._memory)

    @cached_property
    def anew(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names of all nodes: they were chosen for these sizes."""
        return tuple(node.name for node in self.graph.operators)


def program_name(surface: Surface, key: PlanKey, options: Options, threads: int) -> str:
    """The name of the entry of a plan."""
    settings = options.settings
    told = (
        *(surface.digest, processor(), isa_cap(), threads, key),
        surface.code,
        *(options.passes, options.preferences, options.tolerance),
        *(settings.objective, settings.solver, settings.speeds is None),
        sorted(options.delivery.items()),
    )
    return f"program-{blake2b(repr(told).encode(), digest_size=16).hexdigest()}"


def is_kept(key: PlanKey, options: Options) -> bool:
    """Whether plans of such a session are kept as they run: those of the outputs, by estimates."""
    measures = options.settings.clock is not None or options.later is not None
    return only_own() and not (measures or key.inner or options.progress or options.lock)


class Program:
    """An entry that was read.

    Args:
        name: the entry's.
        payload: what it holds.
        surface: the model.
        workspace: what its plan shares with others.

    Attributes:
        applied: where rules were applied to the graph that its plan is of.

    Raises:
        Exception: of any kind, where it is none.
    """

    applied: frozenset[tuple[str, str]] = frozenset()

    def __init__(self, name: str, payload: bytes, surface: Surface, workspace: Workspace) -> None:
        head, _, self._blob = payload.partition(b"\n")
        self._data: Data = json.loads(head)
        if self._data["name"] != name:
            raise ValueError("it is another one's")
        self._surface, self._workspace = surface, workspace
        self._modules: dict[str, ModuleType] = {}
        self._lent: list[Packed] | None = None

    @property
    def replaced(self) -> bool:
        """There is a better plan."""
        return REPLACED in self._data

    @property
    def hopeless(self) -> bool:
        """A plan of this name cannot be kept."""
        return "steps" not in self._data

    def plan(self, full: Callable[[bytes], Plan]) -> Plan:
        """The plan.

        Args:
            full: makes the same plan node by node, of what was chosen.

        Raises:
            Exception: of any kind, where it is none here.
        """
        data, workspace = self._data, self._workspace
        self.applied = frozenset((str(rule), str(node)) for rule, node in data["applied"])
        if data["needs"] > workspace.max_bytes:
            raise ValueError("the budget is smaller")
        natives = made_by(data["lines"], self._module)
        used = [natives[place] for place in data["natives"]]
        threads = min(len(used), workspace.lanes.threads)
        if not all_of(_compiled, used, workspace.executor, threads):
            raise ValueError("a step is none")
        if slots_of(used) != data["slots"]:
            raise ValueError("a step needs other memory")
        memory, regions = self._weights(natives)
        steps: Placed = [
            (natives[native], [(region, begin) for region, begin in places])
            for native, places in data["steps"]
        ]
        packed = workspace.weights.hold(memory)

        def whole() -> Plan:
            self.lend(memory)
            return full(self.chosen)

        given = self._brought(), steps, data["arena"], regions, packed, workspace, whole
        return KeptPlan(*given, program=self, memory=memory)

    @property
    def chosen(self) -> bytes:
        """The entry of the strategy that its plan was made of."""
        return self._blob[self._data["strategy"] :]

    def lend(self, memory: Array) -> None:
        """Let plans of nodes have the weights that lie in memory, as long as somebody has this."""
        if self._lent is not None:
            return
        self._lent = []
        try:
            self._lent.extend(self._packed(memory))
        except MemoryError:
            raise
        except Exception as why:  # of any kind, of whatever an entry says: they are packed again
            _log.debug("no weights are lent: %s", why)

    def _packed(self, memory: Array) -> Iterator[Packed]:
        blob = np.frombuffer(self._blob, np.uint8)
        for row in self._data["large"]:
            own = self._original(row["name"], row["order"], row["shape"])
            change: Hashable = None
            for one in row["changes"]:
                change = change, _part(one) or times(_factor(blob, *one))
            room = Buffer(_slice(memory, row["begin"], row["nbytes"]))
            storage = TensorStorage(*_kind(*row["kind"]), room, constant=True)
            yield self._workspace.weights.lend(own, change, storage, memory)

    def _original(self, name: str, order: list[int], shape: list[int]) -> Original:
        """A large array, its axes in another order where there is one, and then of a shape."""
        given = self._surface.large[name]
        return (given.turned(tuple(order)) if order else given).reshape(tuple(shape))

    def _module(self, name: str) -> ModuleType:
        if name not in self._modules:
            self._modules[name] = found = native_module(name)
            if build_of(found) != self._data["builds"][name]:
                raise ValueError(f"{name} is another build")
        return self._modules[name]

    def _weights(self, natives: Sequence[Any]) -> tuple[Array, list[Array]]:
        """The memory of constants, and each of them."""
        from vtensor.runtime import _replay

        data, blob = self._data, np.frombuffer(self._blob, np.uint8)
        if not 0 <= data["weights"] <= self._workspace.max_bytes:
            raise ValueError("so many weights are none")
        memory = _replay.Arena(data["weights"]).memory()
        for begin, nbytes, at in data["small"]:
            _slice(memory, begin, nbytes)[:] = _slice(blob, at, nbytes)
        with Executor.alone():
            alone = made_by(data["alone"], self._module)
        for row in data["large"]:
            self._pack(memory, blob, natives, alone, **row)
        return memory, [self._constant(memory, *row) for row in data["constants"]]

    def _constant(self, memory: Array, begin: int | str, *nbytes: int) -> Array:
        """A constant: packed, or as it is read."""
        if isinstance(begin, int):
            return _slice(memory, begin, *nbytes)
        array = self._surface.large[begin].now()
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def _pack(
        self,
        memory: Array,
        blob: Array,
        natives: Sequence[Any],
        alone: Sequence[Any],
        name: str,
        order: list[int],
        shape: list[int],
        begin: int,
        nbytes: int,
        changes: list[list[Any]],
        kind: list[Any],
        native: int | None,
        slots: list[Any],
    ) -> None:
        """Read an array, and have it in memory as a step wants it."""
        from vtensor.runtime import _replay

        room, array = _slice(memory, begin, nbytes), self._original(name, order, shape).now()
        for one in changes:
            taken = _part(one)
            array = cut(array, taken) if taken else multiplied(array, _factor(blob, *one))
        scaled = any(_part(one) is None for one in changes)
        if scaled and not _replay.finite([array], [exponent(kind[0])]):
            raise ValueError(f"{name} is folded, and not finite")
        source = array.reshape(-1).view(np.uint8)
        if native is None:
            room[:] = source
        else:
            if sorted(one for one in slots if isinstance(one, str)) != [SOURCE, TARGET]:
                raise ValueError(f"{name} is packed from and to something else")
            if sum(one for one in slots if isinstance(one, int)) > self._workspace.max_bytes:
                raise ValueError("so much scratch is none")
            given = {SOURCE: source, TARGET: room}
            several = nbytes >= LARGE
            step = natives[native] if several else alone[native]
            with nullcontext() if several else Executor.alone():
                own = [_slot(given, one) for one in slots]
                Executor.run_step(step, own)
            clear_subnormals(kind[0], Layout(kind[2]), room)

    def _brought(self) -> Brought:
        """What runs bring, and what they deliver."""
        data = self._data
        inputs = [_value(*row) for row in data["inputs"]]
        own = [TensorStorage(*_kind(*row)) for row in data["own"]]
        bound = [*[TensorStorage(one.dtype, one.dims, one.layout) for one in inputs], *own]
        deliveries = {
            alias: Delivery(alias, _value(*row), bound[place], place)
            for alias, row, place in data["outputs"]
        }
        return Brought(inputs, own, deliveries)


def read_program(
    entries: Entries, name: str, surface: Surface, workspace: Workspace
) -> Program | None:
    """An entry; None where there is none of this name."""
    payload = entries.read(name)
    if payload is None:
        return None
    try:
        return Program(name, payload, surface, workspace)
    except Exception as why:  # of any kind: it is made anew
        _log.debug("%s: %s", name, why)
        return None


def value_row(value: Value) -> list[Any]:
    """A value as an entry holds it."""
    return [value.name, *kind_row(value), value.constant]


def kind_row(of: Value | TensorStorage) -> list[Any]:
    """What a value or its memory is."""
    dims = of.dims if isinstance(of, Value) else of.extents
    return [of.dtype, [*dims.items()], str(of.layout)]


def _value(name: str, dtype: str, dims: list[Any], layout: str, constant: bool) -> Value:
    return Value(name, *_kind(dtype, dims, layout), constant)


def slots_of(natives: Sequence[object]) -> str:
    """A digest of what compiled steps say of their slots: places are for just such memory."""
    from vtensor.runtime import _replay

    told = []
    for native in natives:
        about = _replay.describe(native)
        told.append((about["slots"], about["planes"], about["alignment"]))
    return blake2b(repr(told).encode(), digest_size=16).hexdigest()


def _kind(dtype: str, dims: list[Any], layout: str) -> tuple[str, dict[str, int], Layout]:
    return dtype, {str(dim): int(size) for dim, size in dims}, Layout(layout)


def _compiled(native: object) -> bool:
    from vtensor.runtime import _replay

    return bool(_replay.describe(native))


def _part(change: list[Any]) -> Taken | None:
    """The part that is taken of a weight; None of what it is multiplied by."""
    if len(change) == 2:
        return None
    axis, begin, end = map(int, change)
    return axis, begin, end


def _factor(blob: Array, sizes: list[int], at: int) -> Array:
    """What a weight is multiplied by."""
    return _slice(blob, at, 8 * prod(sizes)).view(np.float64).reshape(sizes)


def _slot(given: Mapping[str, Array], one: str | int) -> Array:
    return Buffer.allocate(one).memory if isinstance(one, int) else given[one]


def _slice(memory: Array, begin: int, nbytes: int) -> Array:
    """Some bytes.

    Raises:
        ValueError: there are none such.
    """
    if not 0 <= begin <= begin + nbytes <= memory.nbytes:
        raise ValueError(f"no {nbytes} bytes from {begin} on")
    return memory[begin : begin + nbytes]
