"""A session bound to fixed memory: its runs skip the checks and the lookup of a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

import numpy as np

from vtensor.errors import InputError
from vtensor.language.cached import cached_property
from vtensor.language.records import dataclass
from vtensor.runtime.execution.delivery import Array, Delivery, places
from vtensor.runtime.execution.one_process import OneProcess
from vtensor.runtime.execution.plan import Conversion, Plan
from vtensor.storage.inputs import Feed

#: A copy that each run of a binding makes: the target array, and a function that returns the
#: elements to copy.
Copy = tuple[Array, Callable[[], Array]]

#: An array that owns memory, its address and its size in bytes at the time of binding. NumPy can
#: resize an array although views of it exist. Only a changed address or size tells that the views
#: dangle.
Owner = tuple[Array, int, int]


@dataclass(frozen=True)
class Binding(OneProcess):
    """Inputs and outputs of a session bound to fixed memory: ``run()`` reads and writes it.

    Attributes:
        plan: the plan that runs.
        outputs: the arrays that hold the outputs after each run, by name.
        copies: the inputs and outputs that each run copies because their layout differs from the
            plan's or because they overlap, by name.

    ``Session.bind`` makes it.

    >>> from ops import Relu
    >>> from vtensor import Graph, Session
    >>> g = Graph("tiny")
    >>> g.output(g.add(Relu(), g.input("x", {"N": 1, "C": 2})), "y")
    >>> x = np.array([[-1, 2]], np.float32)
    >>> with Session(g, libraries=["numpy"]) as session:
    ...     binding = session.bind({"x": x})
    ...     for value in (3, 4):
    ...         x[0, 1] = value
    ...         binding.run()
    ...         print(binding.outputs["y"])
    [[0. 3.]]
    [[0. 4.]]
    """

    plan: Plan
    outputs: Mapping[str, Array]
    copies: Mapping[str, Conversion]
    _enter: Callable[[Binding], None] = field(repr=False)
    _memory: Sequence[Array] = field(repr=False)
    _before: Sequence[Copy] = field(repr=False)
    _after: Sequence[Copy] = field(repr=False)
    _owners: Sequence[Owner] = field(repr=False)
    _strictly: Callable[[Mapping[str, Array]], Binding] | None = field(default=None, repr=False)

    def run(self) -> None:
        """Run the network on the present contents of the inputs.

        Raises:
            InputError: an array was released or resized after binding; nothing has run.
            NativeError: a library failed; the contents of the outputs are then unspecified.
            SessionClosedError: the session was closed.
        """
        self._enter(self)
        for owner, address, nbytes in self._owners:
            if owner.nbytes < nbytes or owner.__array_interface__["data"][0] != address:
                raise InputError("an array that is bound was resized: bind the session again")
        for target, source in self._before:
            np.copyto(target, source())
        if not self.plan.replay(self._memory) and self._strictly is not None:
            self._strict.run()
            return
        for target, elements in [(target, source()) for target, source in self._after]:
            np.copyto(target, elements)

    @cached_property
    def _strict(self) -> Binding:
        """The binding of the strict plan (without approximate variants) to the same memory.

        It repeats a run in which a number is not finite.
        """
        assert self._strictly is not None, "only a plan with a strict plan needs it"
        return self._strictly(self.outputs)


def bind(
    plan: Plan,
    feeds: Mapping[str, Feed],
    wanted: Sequence[str],
    into: Mapping[str, Array],
    enter: Callable[[Binding], None],
    strictly: Callable[[Mapping[str, Array]], Binding] | None = None,
) -> Binding:
    """Return a binding of a plan to the memory of inputs and outputs.

    Args:
        plan: the plan for the sizes and layouts of ``feeds``.
        feeds: the inputs, by name; an input that must be copied is bound as its copy.
        wanted: names of the outputs, in order.
        into: arrays for some of the outputs, by name; each other output gets a new array.
        enter: called with the binding at the begin of each run.
        strictly: returns a binding of the strict plan that writes the given outputs. That binding
            repeats runs with non-finite numbers. None if ``plan`` is strict itself.

    Raises:
        InputError: an input's value decides shapes. A plan then holds for that value alone and
            cannot be bound.
    """
    if decides := feeds.keys() - {value.name for value in plan.inputs}:
        raise InputError(f"inputs {', '.join(sorted(decides))} decide shapes: they cannot be bound")
    fed = [feeds[value.name].part.array for value in plan.inputs]
    places_found = places(plan.own, deliveries := [plan.deliveries[n] for n in wanted], into, fed)
    memory = [*fed, *places_found.memory]
    moved = {name: feed for name, feed in feeds.items() if feed.copied}
    copies = {name: Conversion.of_copy(f"input {name}", feed.part) for name, feed in moved.items()}
    outputs, after = dict[str, Array](), list[Copy]()
    for delivery in deliveries:
        elements = delivery.elements(memory)
        outputs[delivery.name] = into.get(delivery.name, elements)
        if delivery.name in places_found.names and np.may_share_memory(
            elements, memory[delivery.binding or 0]
        ):
            continue
        if delivery.name not in into:
            outputs[delivery.name] = elements.copy()
        after.append((outputs[delivery.name], _reader(delivery, memory, into)))
        copies[delivery.name] = Conversion.of_copy(f"output {delivery.name}", delivery.part(memory))
    arrays = [*(feed.given for feed in feeds.values()), *into.values()]
    before = [(feed.part.logical(feed.dims), feed.elements) for feed in moved.values()]
    owners = [*map(_owner, arrays)]
    return Binding(plan, outputs, copies, enter, memory, before, after, owners, strictly)


def _owner(array: Array) -> Owner:
    """Return the array that owns the memory of ``array``, its address and its size in bytes."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array, array.__array_interface__["data"][0], array.nbytes


def _reader(
    delivery: Delivery, memory: Sequence[Array], into: Mapping[str, Array]
) -> Callable[[], Array]:
    """Return a function that returns the elements of an output after a run.

    It returns a copy if writing the other outputs to the caller's arrays would change these
    elements.

    Args:
        delivery: the output.
        memory: the memory of the run's inputs and outputs.
        into: the caller's arrays for outputs, by name of the output.
    """
    if delivery.overwritten(memory, into):
        return lambda: delivery.elements(memory).copy()
    return lambda: delivery.elements(memory)
