"""A session bound to fixed memory: its runs check and look up nothing."""

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

#: What is written before or after each run, and what gives its elements then.
Copy = tuple[Array, Callable[[], Array]]

#: An array that owns memory, where that began, and how much it was. NumPy resizes arrays that
#: others look at where it is told not to count them; then nothing else says that views dangle.
Owner = tuple[Array, int, int]


@dataclass(frozen=True)
class Binding(OneProcess):
    """Inputs and outputs of a session in memory that stays: ``run()`` reads and writes it.

    Attributes:
        plan: what runs.
        outputs: the arrays that have the outputs after each run, by name.
        copies: the inputs and outputs that each run copies, since they lie otherwise than the plan
            takes or delivers them, or overlap.

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
        """Run the network on what the inputs hold now.

        Raises:
            InputError: the memory of an array was let go of or resized since; nothing has run.
            NativeError: a library failed; what the outputs hold then is unspecified.
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
        """The same memory with the plan that answers where numbers are not finite."""
        assert self._strictly is not None, "asked for where there is one"
        return self._strictly(self.outputs)


def bind(
    plan: Plan,
    feeds: Mapping[str, Feed],
    wanted: Sequence[str],
    into: Mapping[str, Array],
    enter: Callable[[Binding], None],
    strictly: Callable[[Mapping[str, Array]], Binding] | None = None,
) -> Binding:
    """Bind a plan's inputs and outputs.

    Args:
        plan: of these inputs.
        feeds: the inputs; an array of our own stands in for one that has to be copied.
        wanted: outputs.
        into: arrays for some of them; others are made.
        enter: called before each run.
        strictly: binds the plan that answers where numbers are not finite to these outputs.

    Raises:
        InputError: the value of an input decides shapes, which a plan has in itself.
    """
    if decides := feeds.keys() - {one.name for one in plan.inputs}:
        raise InputError(f"inputs {', '.join(sorted(decides))} decide shapes: they cannot be bound")
    fed = [feeds[one.name].part.array for one in plan.inputs]
    found = places(plan.own, deliveries := [plan.deliveries[n] for n in wanted], into, fed)
    memory = [*fed, *found.memory]
    moved = {name: feed for name, feed in feeds.items() if feed.copied}
    copies = {name: Conversion.of_copy(f"input {name}", feed.part) for name, feed in moved.items()}
    outputs, after = dict[str, Array](), list[Copy]()
    for one in deliveries:
        made = one.elements(memory)
        outputs[one.name] = into.get(one.name, made)
        if one.name in found.names and np.may_share_memory(made, memory[one.binding or 0]):
            continue
        if one.name not in into:
            outputs[one.name] = made.copy()
        after.append((outputs[one.name], _reader(one, memory, into)))
        copies[one.name] = Conversion.of_copy(f"output {one.name}", one.part(memory))
    given = [*(feed.given for feed in feeds.values()), *into.values()]
    before = [(feed.part.logical(feed.dims), feed.elements) for feed in moved.values()]
    owners = [*map(_owner, given)]
    return Binding(plan, outputs, copies, enter, memory, before, after, owners, strictly)


def _owner(array: Array) -> Owner:
    """The array whose memory this one looks at."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array, array.__array_interface__["data"][0], array.nbytes


def _reader(
    one: Delivery, memory: Sequence[Array], into: Mapping[str, Array]
) -> Callable[[], Array]:
    """Gives an output's elements, which stay when other outputs are written to the arrays."""
    if one.overwritten(memory, into):
        return lambda: one.elements(memory).copy()
    return lambda: one.elements(memory)
