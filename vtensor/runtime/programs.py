"""Plans on disk as they run: steps, places and weights, for a model that is known.

An entry is kept under a digest of all that its plan depends on: the model but for its large arrays,
whose values nothing was chosen by, what the session was told, libraries and processor. It holds no
code and no address. Native code looks at each call that makes a step, and at each place, as it does
when a plan is made; what it refuses, what does not fit or is damaged is made anew. The plan's nodes
are made of the strategy beside it where somebody looks at them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from libdesc.own import only_own
from ptensor.buffer import TensorStorage
from resolver.values import Value
from vtensor.isa import isa_cap
from vtensor.language.cached import cached_property
from vtensor.language.imported import blake2b, logger
from vtensor.language.interrupts import MALFORMED, pass_signals
from vtensor.runtime.all_of import all_of
from vtensor.runtime.delivery import Delivery
from vtensor.runtime.drawn import Brought, DrawnPlan, Placed
from vtensor.runtime.entries import Entries
from vtensor.runtime.kept_weights import Data, KeptWeights, kind_of
from vtensor.runtime.options import Options
from vtensor.runtime.processors import processor
from vtensor.runtime.workspace import Workspace

if TYPE_CHECKING:
    from vtensor.frontends.surface import Surface
    from vtensor.runtime.feeds import Port
    from vtensor.runtime.keys import InputKey, PlanKey
    from vtensor.runtime.plan import Plan

#: How the names of entries of provisional plans begin.
FIRST = "first-"

_log = logger(__name__)


class KeptPlan(DrawnPlan):
    """A plan as it was kept.

    Args:
        given: as for ``DrawnPlan``.
        program: the entry.
    """

    def __init__(self, *given: Any, program: Program) -> None:
        super().__init__(*given)
        del self.anew  # nodes say it
        self._entry = program

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
        self._entry.weights.lend()

    @property
    def weights(self) -> KeptWeights:
        """What it has packed."""
        return self._entry.weights

    @cached_property
    def anew(self) -> tuple[str, ...]:
        """The names of all nodes: they were chosen for these sizes."""
        return tuple(node.name for node in self.graph.operators)


def program_name(surface: Surface, key: PlanKey, options: Options, threads: int) -> str:
    """The name of the entry of a plan."""
    return f"program-{digest_of(surface, key, options, threads)}"


def digest_of(surface: Surface, key: object, options: Options, threads: int) -> str:
    """A digest of all that what is kept of a model depends on, where it is for a key."""
    settings = options.settings
    told = (
        *(surface.digest, processor(), isa_cap(), threads, key),
        surface.code,
        *(options.passes, options.preferences, options.tolerance),
        *(settings.objective, settings.solver, settings.speeds is None),
        sorted(options.delivery.items()),
    )
    return blake2b(repr(told).encode(), digest_size=16).hexdigest()


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
        weights: its constants.

    Raises:
        Exception: of any kind, where it is none.
    """

    applied: frozenset[tuple[str, str]] = frozenset()

    def __init__(self, name: str, payload: bytes, surface: Surface, workspace: Workspace) -> None:
        head, _, self._blob = payload.partition(b"\n")
        self._data: Data = json.loads(head)
        if self._data["name"] != name:
            raise ValueError("it is another one's")
        self._workspace = workspace
        self.weights = KeptWeights(self._data, self._blob, surface, workspace)

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
        natives = self.weights.natives()
        used = [natives[place] for place in data["used"]]
        threads = min(len(used), workspace.lanes.threads)
        if not all_of(_compiled, used, workspace.executor, threads):
            raise ValueError("a step is none")
        if slots_of(used) != data["slots"]:
            raise ValueError("a step needs other memory")
        regions = self.weights.made(natives)
        steps: Placed = [
            (natives[native], [(region, begin) for region, begin in places])
            for native, places in data["steps"]
        ]
        begin = 1 + len(data["inputs"]) + len(data["own"])
        read = {region for _, places in steps for region, _ in places}
        whole_steps = {native for native, _ in data["steps"]} == {*data["used"]}
        if not whole_steps or not read.issuperset(range(begin, begin + len(regions))):
            raise ValueError("a step or a constant is left out")
        packed = workspace.weights.hold(self.weights.memory)

        def whole() -> Plan:
            self.weights.lend()
            return full(self.chosen)

        given = self._brought(), steps, data["arena"], regions, packed, workspace, whole
        return KeptPlan(*given, program=self)

    @property
    def chosen(self) -> bytes:
        """The entry of the strategy that its plan was made of."""
        return self._blob[self._data["strategy"] :]

    def _brought(self) -> Brought:
        """What runs bring, and what they deliver."""
        data = self._data
        inputs = [_value(*row) for row in data["inputs"]]
        own = [TensorStorage(*kind_of(*row)) for row in data["own"]]
        bound = [*[TensorStorage(one.dtype, one.dims, one.layout) for one in inputs], *own]
        deliveries = {
            alias: Delivery(alias, _value(*row), bound[place], place)
            for alias, row, place in data["outputs"]
        }
        return Brought(inputs, own, deliveries)


def check_ends(plan: Plan, key: PlanKey, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
    """See that a plan takes what a key says, in the dims of the inputs, and delivers the outputs.

    Raises:
        ValueError: it does not: what was kept is another's, or its sizes do not fit together.
    """
    ports = {port.name: port for port in inputs}

    def named(one: InputKey) -> list[tuple[str, int]]:
        dims = ports[one.name].of_rank(len(one.shape)).dims
        return [*zip(dims, one.shape, strict=True)]

    wanted = [
        (one.name, one.dtype, one.layout, named(one)) for one in key.inputs if one.value is None
    ]
    if wanted != [(one.name, one.dtype, one.layout, [*one.dims.items()]) for one in plan.inputs]:
        raise ValueError("it takes other inputs")
    if [*plan.deliveries] != [port.name for port in outputs]:
        raise ValueError("it delivers other outputs")
    for port, one in zip(outputs, plan.deliveries.values(), strict=True):
        value = one.value
        if value.dtype != port.dtype or not (port.any_rank or tuple(value.dims) == port.dims):
            raise ValueError(f"output {port.name} has another type or other dims")
        sizes = zip(port.shape, value.dims.values(), strict=not port.any_rank)
        if any(size not in (None, own) for size, own in sizes):
            raise ValueError(f"output {port.name} has other sizes")
        if {*value.layout.dims} != {*value.dims} or value.nbytes != one.memory.nbytes:
            raise ValueError(f"output {port.name} has other memory")


def read_program(
    entries: Entries, name: str, surface: Surface, workspace: Workspace
) -> Program | None:
    """An entry; None where there is none of this name."""
    payload = entries.read(name)
    if payload is None:
        return None
    try:
        return Program(name, payload, surface, workspace)
    except MALFORMED as why:  # of any kind: it is made anew
        pass_signals(why)
        _log.debug("%s: %s", name, why)
        return None


def _value(name: str, dtype: str, dims: list[Any], layout: str, constant: bool) -> Value:
    return Value(name, *kind_of(dtype, dims, layout), constant)


def slots_of(natives: Sequence[object]) -> str:
    """A digest of what compiled steps say of their slots: places are for just such memory."""
    from vtensor.runtime import _replay

    told = []
    for native in natives:
        about = _replay.describe(native)
        told.append((about["slots"], about["planes"], about["alignment"]))
    return blake2b(repr(told).encode(), digest_size=16).hexdigest()


def _compiled(native: object) -> bool:
    from vtensor.runtime import _replay

    return bool(_replay.describe(native))
