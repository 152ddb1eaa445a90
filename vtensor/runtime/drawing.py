"""Drawing a blueprint: a plan is recorded once on symbolic sizes, and its memory arranged on them.

A plan's outline has a trace of its sizes, and each kind of call a trace of its own. What is
computed with their values further, until it is known which memory each value has, is on the
blueprint's trace, whose symbols are values of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NoReturn

from optimizer.computed import Computed
from ptensor.buffer import TensorStorage
from ptensor.stopping import go_on
from resolver.lowered import LoweredGraph, LoweredNode, TransformNode, Value
from vtensor.language.records import dataclass
from vtensor.language.tensor import VTensor
from vtensor.language.trace import NotTraced, Rows, SymbolicSize, Trace
from vtensor.runtime.open_program import described
from vtensor.runtime.outline import CODED
from vtensor.runtime.recipe_keys import Key, Operand
from vtensor.runtime.recipes import Entry, Recipe, Recipes, Recorded, Row
from vtensor.runtime.record import Recorder
from vtensor.runtime.sized import Traced, opened, traced

if TYPE_CHECKING:
    from vtensor.runtime.workspace import Workspace


@dataclass(eq=False)
class Given:
    """Values of one trace, of which the blueprint's takes those that it needs.

    Attributes:
        trace: the blueprint's.
        now: the numbers, for the sizes of now.
        rows: where the blueprint's sizes come from, in order: whose numbers, and their places.
    """

    trace: Trace
    now: Sequence[Any]
    rows: list[tuple[Given, int]]
    _made: dict[int, SymbolicSize] = field(default_factory=dict)

    def __getitem__(self, place: int) -> Any:
        """The number at a place, on the blueprint's trace; a native thing's stand-in."""
        if type(self.now[place]) is not int:
            return Stand(self, place)
        if place not in self._made:
            self._made[place] = self.trace.size(self.now[place])
            self.rows.append((self, place))
        return self._made[place]


@dataclass(frozen=True, eq=False)
class Stand:
    """Stands for a native step.

    Attributes:
        given, place: where it comes from.
    """

    given: Given
    place: int


@dataclass(eq=False)
class Class:
    """Calls that differ in nothing, whatever the sizes are.

    Attributes:
        recipe: what they come to, on the blueprint's trace.
        rows: of their own trace.
        sizes: the places of its sizes on the outline's trace.
        given: its numbers.
        nodes: whose they are.
    """

    recipe: Recipe
    rows: Rows
    sizes: Sequence[int]
    given: Given
    nodes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Opened:
    """A constant that depends on sizes.

    Attributes:
        value: what it is.
        changes: Transforms that run ahead of it, in order, and what each makes.
    """

    value: Value
    changes: tuple[tuple[TransformNode, Value], ...] = ()


class Drawing(Recorder):
    """Records a lowered graph whose sizes are on the blueprint's trace.

    Args:
        graph: its sizes are symbolic.
        coded: the same with numbers that stand for sizes.
        now: the same with the sizes of now.
        sizes: all of the outline's.
        constants: arrays of the graph's constants by name.
        is_open: whether a constant's values depend on sizes.
        workspace: as for ``Recorder``.
        recipes: what calls came to.

    Attributes:
        opened: the storages of constants that depend on sizes.
        classes: of calls.
    """

    def __init__(
        self,
        graph: LoweredGraph,
        coded: LoweredGraph,
        now: LoweredGraph,
        sizes: Given,
        constants: Mapping[str, Any],
        is_open: Callable[[str], bool],
        workspace: Workspace,
        recipes: Recipes,
    ) -> None:
        without = frozenset(
            name
            for name, value in graph.values.items()
            if value.constant and name in constants and is_open(name)
        )
        super().__init__(graph, Without(constants, without), workspace, confirming=True)
        self._recipes = recipes
        self.opened: dict[TensorStorage, Opened] = {}
        self.classes: list[Class] = []
        self._without = without
        self._coded, self._now, self._sizes = coded, now, sizes
        self._nodes = {
            node.name: (one, other)
            for node, one, other in zip(graph.nodes, coded.nodes, now.nodes, strict=True)
        }
        self._known: dict[Key, Class | None] = {}

    def draw(self) -> None:
        """Record every node.

        Raises:
            NotTraced, VTensorError: it cannot be, without a certain number.
        """
        self._walk(lambda _: go_on())

    def _storage(self, value: Value) -> TensorStorage:
        if value.name in self._without and value.name not in self.storages:
            self.storages[value.name] = self._open(value, Opened(value))
        return super()._storage(value)

    def _open(self, value: Value, opened: Opened) -> TensorStorage:
        tensor = VTensor(value.dtype, value.dims)
        made = TensorStorage.deferred(_nobody_looks, tensor, value.layout)
        self.opened[made] = opened
        return made

    def _ahead(self, node: TransformNode) -> None:
        source = self.storages.get(node.input)
        if node.input in self._without:
            source = self._storage(self.graph.values[node.input])
        before = None if source is None else self.opened.get(source)
        if before is None:
            super()._ahead(node)
            return
        target = self.graph.values[node.output]
        opened = Opened(before.value, (*before.changes, (node, target)))
        self.storages[node.output] = self._open(target, opened)

    def _found(
        self, node: LoweredNode, inputs: Sequence[Operand], outputs: Sequence[Operand]
    ) -> Recorded:
        coded, _ = self._nodes[node.name]
        operands = [*inputs, *outputs]
        key = self._key(coded, [self._as(self._coded, one) for one in operands])
        if key.parts is None:
            raise NotTraced(f"{node.name} has parameters that are in no key")
        if key not in self._known:
            self._known[key] = self._class(key, node, operands, len(inputs))
        found = self._known[key]
        if found is None:
            return super()._found(node, inputs, outputs)
        found.nodes.append(node.name)
        storages = [one.storage for one in inputs if one.storage is not None]
        return found.recipe.on(node.name, key.names, storages, outputs)

    @staticmethod
    def _as(graph: LoweredGraph, operand: Operand) -> Operand:
        """An operand of another graph of the same."""
        return operand._replace(value=graph.values[operand.value.name], storage=None)

    def _class(
        self, key: Key, node: LoweredNode, operands: Sequence[Operand], count: int
    ) -> Class | None:
        """What calls of a key come to; None where they depend on no size, and have no recipe.

        Raises:
            VTensorError: the library does not take the call in the sizes of now.
            NotTraced: it cannot be traced.
        """
        coded, now = self._nodes[node.name]
        others = [self._as(self._coded, one) for one in operands]
        own = [self._stand_in(one) for one in operands]
        own[count:] = [one._replace(storage=None) for one in own[count:]]
        row = Row(now, own, self._key(now, own), Entry(None))
        before = Row(coded, others, key, Entry(None))
        apart = opened(key, row.key)
        if apart is None:
            raise NotTraced(f"{node.name} depends on sizes otherwise than by numbers")
        opened_key, pairs = apart
        if not pairs:
            return None
        known = self._recipes.known(opened_key)
        numbers = [number for _, number in pairs]
        found = next((one for one in known.recipes if one.rows.run(numbers) is not None), None)

        def record(call: Traced) -> Recipe | None:
            return self._recipe(key, call.node, call.operands[:count], call.operands[count:])

        sized = found or traced(
            self._recipes, opened_key, before, row, pairs, record, limited=False
        )
        told = None if sized is None else sized.rows.run(numbers)
        if sized is None or told is None:
            self._recipe(row.key, now, own[:count], own[count:])  # says so, if its library declines
            raise NotTraced(f"{node.name} cannot be recorded on symbolic sizes")
        sized.trace.forget()
        given = Given(self._sizes.trace, told, self._sizes.rows)
        recipe = sized.on(given, (), operands)
        for step in recipe.recorded.steps:
            native: Any = step.native
            here = given.now[native.place] if type(native) is Stand else native
            step.code.kernel, step.code.access = described(here)
        made = Class(recipe, sized.rows, [code - CODED for code, _ in pairs], given)
        self.classes.append(made)
        return made

    def _stand_in(self, operand: Operand) -> Operand:
        """An operand with the sizes of now, whose values nobody may look at."""
        value = self._now.values[operand.value.name]
        if operand.known:
            tensor = VTensor(value.dtype, value.dims)
            storage = TensorStorage.deferred(_nobody_looks, tensor, operand.layout)
        else:
            storage = TensorStorage(value.dtype, value.dims, operand.layout)
        return operand._replace(value=value, storage=storage)


class Without(Computed):
    """Constants without some of them."""

    def __init__(self, given: Mapping[str, Any], without: frozenset[str]) -> None:
        super().__init__(given)
        self._without = without

    def __contains__(self, name: object) -> bool:
        return name not in self._without and super().__contains__(name)


def _nobody_looks() -> NoReturn:
    raise NotTraced("a constant's values are looked at")
