"""Plans of open sizes: native steps, places and memory as numbers that sizes decide.

Three kinds of traces say what given sizes come to: the outline's (all sizes of the graph and its
constants that depend on them), one for each kind of call (its native steps, and how much memory
they need), and the program's own (places in memory). If a guard of one of them fails, or one of the
checker's, there is no plan of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ptensor.buffer import TensorStorage
from ptensor.layout import Layout
from resolver.addresses import addresses
from resolver.values import Value
from vtensor.errors import UnsoundPlanError
from vtensor.language.interrupts import pass_signals
from vtensor.language.records import dataclass
from vtensor.language.trace import Rows
from vtensor.runtime.all_of import all_of
from vtensor.runtime.delivery import Delivery
from vtensor.runtime.drawn import Brought, DrawnPlan, Full, Placed

if TYPE_CHECKING:
    from vtensor.runtime.open_slots import Numbers, Pieces, Slots
    from vtensor.runtime.packed import PackedWeights
    from vtensor.runtime.plan import Plan
    from vtensor.runtime.weights import Packed
    from vtensor.runtime.workspace import Workspace

Array = np.ndarray[Any, Any]

#: The name of a dim in a layout.
_NAME = re.compile(r"[A-Za-z_]\w*")

#: The source of numbers that is the outline; of calls, those of the first kind are the next one.
OUTLINE = 0


#: Rows, and the sizes that they are run for.
Asking = tuple[Rows, tuple[int, ...]]

#: What rows gave for sizes.
Told = dict[Asking, Sequence[Any] | None]

#: Dims, and where the numbers of their sizes are.
Dims = Sequence[tuple[str, int]]

#: What the checker asked: whether two layouts are one, of dims whose sizes are at these places.
Asked = tuple[str, str, Dims]


@dataclass(eq=False)
class Calls:
    """Calls that differ in nothing, whatever the sizes are.

    Attributes:
        rows: of their trace.
        sizes: the places of its sizes on the outline's trace.
        natives: the places of native steps on their trace.
        nodes: whose they are, as far as that is known.
        took: seconds that it took to say what they come to; infinite where they came to nothing.
    """

    rows: Rows
    sizes: Sequence[int]
    natives: set[int]
    nodes: Sequence[str] = ()
    took: float = 0.0


class Stand(NamedTuple):
    """Stands for a native step, a value of the trace of calls.

    Attributes:
        source: which one's, behind the outline's.
        place: where it is there.
        access: what it does with its slots.
    """

    source: int
    place: int
    access: tuple[str, ...]


class End(NamedTuple):
    """A value that runs bring or deliver; its sizes are places of numbers."""

    name: str
    dtype: str
    dims: Dims
    layout: Layout
    constant: bool = False

    def value(self, numbers: Array) -> Value:
        """It in some sizes."""
        return Value(
            self.name, self.dtype, sizes_of(self.dims, numbers), self.layout, self.constant
        )

    def storage(self, numbers: Array) -> TensorStorage:
        """Its memory in some sizes."""
        return TensorStorage(self.dtype, sizes_of(self.dims, numbers), self.layout)

    @property
    def lying(self) -> Hashable:
        """How it lies: of two constants of one array that are equal in this, the memory is, too."""
        return unnamed(str(self.layout), [dim for dim, _ in self.dims])


class Delivered(NamedTuple):
    """An output.

    Attributes:
        alias: what it is delivered under.
        end: it.
        binding: which of the inputs or of the plan's own memory it lies in.
        constant: what it lies in else.
    """

    alias: str
    end: End
    binding: int | None
    constant: TensorStorage | None = None


def unnamed(layout: str, dims: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """A layout, and the names of dims in it, which are their places where it has each by itself:
    memory lies alike where these are equal.

    >>> unnamed("B D21 D6", ["D6", "B", "D21"]), unnamed("NHWC", "NCHW")
    (('d1 d2 d0', ('d0', 'd1', 'd2')), ('NHWC', ('N', 'C', 'H', 'W')))
    """
    names = {name: f"d{place}" for place, name in enumerate(dims)}
    if " " not in layout:
        return layout, tuple(names)
    order, *encoding = layout.partition(":")
    told = _NAME.sub(lambda found: names.get(found[0], found[0]), order)
    return "".join((told, *encoding)), tuple(names.values())


def sizes_of(dims: Dims, numbers: Array) -> dict[str, int]:
    """Dims with their sizes."""
    return {dim: int(numbers[place]) for dim, place in dims}


class OpenProgram:
    """A plan whose sizes are open.

    Attributes:
        sizes: runs the outline's rows.
        calls: kinds of calls.
        rows: where its own trace's symbols come from, in order: the source, and the place there.
        run: runs its own rows.
        count: how many values its own trace has.
        numbers: has a place for each number of that trace, and for those that depend on no size.
        natives: the steps, or what stands for them.
        slots: where these lie.
        held, live: places of the sizes of all that is held, and pieces of the arena.
        asked: by the checker.
        inputs, own, outputs: what runs bring and deliver.
        memory: of constants.
        packed: the constants, as long as this is kept.
        proven: what was chosen is proven the best for all sizes.
    """

    sizes: Callable[[Sequence[int]], Sequence[int] | None]
    calls: Sequence[Calls]
    rows: Sequence[tuple[int, int]]
    run: Callable[[Sequence[int]], Sequence[int] | None]
    count: int
    numbers: Numbers
    natives: Sequence[object]
    slots: Slots
    held: Array
    live: Pieces
    asked: Sequence[Asked]
    inputs: Sequence[End]
    own: Sequence[End]
    outputs: Sequence[Delivered]
    memory: Sequence[Array]
    packed: PackedWeights | Packed
    proven: bool

    def plan(
        self, given: Sequence[int], workspace: Workspace, full: Full, known: Told
    ) -> Plan | None:
        """The plan for open sizes; None where it would be another, or is none.

        Args:
            given: of the outline.
            workspace: what it shares with others.
            full: makes the same plan node by node, for whoever looks at its nodes.
            known: what rows of calls have given, also to others for the same sizes.

        Raises:
            BudgetError: it needs more memory than the workspace may have.
        """
        sizes = self.sizes(given)
        told = None if sizes is None else self._told(sizes, known, workspace)
        if sizes is None or told is None:
            return None
        on_trace = self.run([told[source][place] for source, place in self.rows])
        if on_trace is None:
            return None
        numbers = self.numbers.at(on_trace[: self.count])
        needs = int(numbers[self.held].sum()) + self.live.live(numbers)
        if needs > workspace.max_bytes or not self._sound(numbers):
            return None
        natives = [
            told[one.source][one.place] if type(one) is Stand else one for one in self.natives
        ]
        regions = self._regions(sizes, numbers) if self._alike(natives) else None
        if regions is None:
            return None
        steps, nbytes = self._placed(natives, numbers)
        brought = self._brought(numbers)
        return DrawnPlan(brought, steps, nbytes, regions, self.packed, workspace, full)

    def _told(
        self, sizes: Sequence[int], known: Told, workspace: Workspace
    ) -> list[Sequence[Any]] | None:
        """What all rows but its own give; the steps among that are compiled."""
        rows = [*zip(self.calls, self._asking(sizes), strict=True)]
        new = {key: one for one, key in rows if key not in known}
        order = sorted(new, key=lambda key: -new[key].took)  # first who says no, then who is slow
        takes = sum(one.took for one in new.values())
        ask = partial(self._ask, known, new)
        every = all(known.get(key, ()) is not None for _, key in rows)
        every = every and all_of(ask, order, workspace.executor, workspace.lanes.threads, takes)
        told = [numbers for _, key in rows if (numbers := known.get(key)) is not None]
        return [sizes, *told] if every else None

    def _asking(self, sizes: Sequence[int]) -> list[Asking]:
        return [(one.rows, tuple([sizes[place] for place in one.sizes])) for one in self.calls]

    def _ask(self, known: Told, calls: Mapping[Asking, Calls], key: Asking) -> bool:
        """Note what rows give, and compile its steps; whether they give anything."""
        begun, (rows, sizes) = perf_counter(), key
        numbers = rows.run(sizes)
        places = calls[key].natives if numbers is not None else ()
        if numbers is not None and any(_access(numbers[one]) is None for one in places):
            numbers = None
        known[key], no = numbers, numbers is None
        calls[key].took = inf if no else perf_counter() - begun
        return not no

    def _sound(self, numbers: Array) -> bool:
        """What the checker asks of sizes has the same answers."""
        try:
            for one, other, places in self.asked:
                dims = sizes_of(places, numbers)
                if addresses(one, dims) != addresses(other, dims):
                    return False
        except UnsoundPlanError:
            return False
        return True

    def _alike(self, natives: Sequence[object]) -> bool:
        """The steps are compiled, and do with their slots what those did that were drawn."""
        rows = {
            (id(one), stand.access): one
            for one, stand in zip(natives, self.natives, strict=True)
            if type(stand) is Stand
        }
        return all(_access(one) == access for (_, access), one in rows.items())

    def _regions(self, sizes: Sequence[Any], numbers: Array) -> Sequence[Array] | None:  # noqa: ARG002
        """The memory of constants; None where there is none in these sizes."""
        return self.memory

    def _placed(self, natives: Sequence[object], numbers: Array) -> tuple[Placed, int]:
        """The steps and where their slots lie, and the size of the arena."""
        return self.slots.placed(natives, numbers)

    def _brought(self, numbers: Array) -> Brought:
        """What runs bring, and what they deliver."""
        own = [one.storage(numbers) for one in self.own]
        bound = [*(one.storage(numbers) for one in self.inputs), *own]
        deliveries = {}
        for alias, end, binding, constant in self.outputs:
            memory = bound[binding] if binding is not None else constant
            assert memory is not None, "what is not bound is a constant's"
            deliveries[alias] = Delivery(alias, end.value(numbers), memory, binding)
        return Brought([one.value(numbers) for one in self.inputs], own, deliveries)


def described(native: Any) -> tuple[str, tuple[str, ...]]:
    """What a native step says of itself: its kernel's name, and what it does with each slot."""
    from vtensor.runtime import _replay

    about = _replay.describe(native)
    return str(about["kernel"]), tuple(access for _, _, access in about["slots"])


def _access(native: object) -> tuple[str, ...] | None:
    """What a step does with its slots, once it is compiled; None where its library does not."""
    try:
        return described(native)[1]
    except MemoryError:
        raise
    except Exception as error:  # of a library, or of an author's step
        pass_signals(error)
        return None
