"""What plans are told apart by."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from math import log

import numpy as np

from ptensor.layout import Layout
from vtensor.errors import InputError
from vtensor.language.cached import cached_property
from vtensor.language.dtype import numpy_dtype
from vtensor.language.records import dataclass
from vtensor.storage.inputs import Array, Feed, Port


@dataclass(frozen=True)
class InputKey:
    """An input as plans tell it apart.

    Attributes:
        value: its bytes, where its value decides shapes; it is then no input of the plan.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: Layout
    value: bytes | None = None

    @classmethod
    def of(cls, port: Port, feed: Feed, expected: Layout, decides: bool) -> InputKey:
        """What is given for an input.

        Args:
            port: the input.
            feed: what is given.
            expected: how inputs of the session lie.
            decides: its value decides shapes.

        Raises:
            InputError: it has more elements than what decides shapes may have.
        """
        sizes, layout = feed.part.extents, feed.part.layout
        shape = tuple(sizes[dim] for dim in feed.dims)
        if not decides:
            same = expected.same(layout, sizes)
            return cls(port.name, shape, port.dtype, expected if same else layout)
        from vtensor.frontends.values import LIMIT_ELEMENTS

        values = feed.values(feed.dims)
        if values.size > LIMIT_ELEMENTS:
            raise InputError(
                f"input {port.name!r}: its value decides shapes, and {values.size} "
                f"elements were given; {LIMIT_ELEMENTS} are the most"
            )
        return cls(port.name, shape, port.dtype, Layout.plain(feed.dims), values.tobytes())

    def array(self) -> Array:
        """The value that decides shapes."""
        assert self.value is not None, "only of what decides shapes a plan has the value"
        return np.frombuffer(self.value, numpy_dtype(self.dtype)).reshape(self.shape)


@dataclass(frozen=True)
class PlanKey:
    """What a plan is made for.

    Attributes:
        inputs: in the network's order.
        inner: values that it delivers beside the network's outputs.
    """

    inputs: tuple[InputKey, ...]
    inner: tuple[str, ...] = ()

    @classmethod
    def of_shapes(
        cls,
        ports: Iterable[Port],
        shapes: Mapping[str, tuple[int, ...]],
        known: Mapping[str, Array],
        entry: Mapping[str, Layout],
    ) -> PlanKey:
        """Return the key for inputs of these shapes.

        Args:
            ports: the inputs.
            shapes: by input.
            known: values of inputs that decide shapes.
            entry: how inputs are laid out, where that is not their declared order.
        """
        rows = []
        for port in ports:
            shape = shapes[port.name]
            layout = entry.get(port.name, Layout.plain(port.of_rank(len(shape)).dims))
            value = known[port.name].tobytes() if port.name in known else None
            rows.append(InputKey(port.name, shape, port.dtype, layout, value))
        return cls(tuple(rows))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """A run of new sizes looks for its key a dozen times."""
        return hash((self.inputs, self.inner))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all inputs."""
        return {one.name: one.shape for one in self.inputs}

    @property
    def known(self) -> dict[str, Array]:
        """The values of inputs that decide shapes."""
        return {one.name: one.array() for one in self.inputs if one.value is not None}

    def with_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> PlanKey:
        """The key for other shapes of the same inputs."""
        rows = (replace(one, shape=shapes[one.name]) for one in self.inputs)
        return PlanKey(tuple(rows), self.inner)

    @property
    def kind(self) -> Hashable:
        """What plans have in common that differ in sizes alone."""
        rows = [(one.name, len(one.shape), one.layout, one.value is None) for one in self.inputs]
        return (*rows, self.inner)

    @property
    def ones(self) -> list[bool]:
        """Which sizes are one: of such dims much holds that does not of others."""
        return [size == 1 for size in chain(*self.shapes.values())]

    def distance(self, other: PlanKey) -> float:
        """How far its sizes are from those of another key of its kind: by which factors."""
        sizes = zip(chain(*self.shapes.values()), chain(*other.shapes.values()), strict=True)
        return sum(abs(log((a + 1) / (b + 1))) for a, b in sizes)

    @property
    def entry(self) -> dict[str, Layout]:
        """How the plan's inputs lie."""
        return {one.name: one.layout for one in self.inputs if one.value is None}
