"""Keys of plans: the shapes, element types and layouts of inputs, and the values of inputs that
decide shapes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
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

#: Element types of the deciding values whose elements may be open.
OPEN_TYPES = ("s64", "s32")

#: The largest deciding value whose elements may be open, in elements.
MOST_OPEN_ELEMENTS = 16


@dataclass(frozen=True)
class InputKey:
    """The facts of an input that its plans depend on.

    Attributes:
        name: the input's name.
        shape: its sizes, in the order of its declared dims.
        dtype: its element type.
        layout: its layout in memory.
        value: the bytes of the input's value if the value decides shapes; None for other inputs. An
            input with a value here is no input of the plan.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: Layout
    value: bytes | None = None

    @classmethod
    def of(cls, port: Port, feed: Feed, expected: Layout, decides: bool) -> InputKey:
        """Return the key of an input of a run.

        Args:
            port: the declaration of the input.
            feed: the array given for it.
            expected: the layout of this input for which the session makes plans.
            decides: True if the input's value decides shapes.

        Raises:
            InputError: a deciding value has too many elements.
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
        """Return ``value`` as an array; only for an input whose value decides shapes."""
        assert self.value is not None, "a plan has the values of deciding inputs alone"
        return np.frombuffer(self.value, numpy_dtype(self.dtype)).reshape(self.shape)

    @property
    def is_open(self) -> Sequence[bool]:
        """For each element of a deciding value, whether symbolic plans serve other elements too.

        These are integers from 2 on of a small value, such as sizes. Plans may treat 0, 1 and
        negative numbers in ways of their own.
        """
        if self.value is None or self.dtype not in OPEN_TYPES:
            return ()
        elements = self.array().reshape(-1)
        small = elements.size <= MOST_OPEN_ELEMENTS
        return [small and element >= 2 for element in elements.tolist()]

    @property
    def closed_value(self) -> Hashable:
        """The deciding value, with None in place of its open elements; None if it has no value."""
        if self.value is None:
            return None
        is_open = self.is_open
        if not any(is_open):
            return self.value
        elements = self.array().reshape(-1).tolist()
        return tuple(None if o else e for o, e in zip(is_open, elements, strict=True))


@dataclass(frozen=True)
class PlanKey:
    """The key of a plan.

    Attributes:
        inputs: the keys of inputs, in the network's order.
        inner: the names of values inside the network that the plan delivers in addition to the
            outputs.
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
            ports: the declarations of the inputs.
            shapes: the shapes, by input.
            known: the values of inputs that decide shapes, by input.
            entry: the layouts of inputs that are not in declared order, by input.
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
        """The hash of the key, computed once: a run with new sizes looks up its key a dozen
        times.
        """
        return hash((self.inputs, self.inner))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all inputs, by name."""
        return {row.name: row.shape for row in self.inputs}

    @property
    def known(self) -> dict[str, Array]:
        """The values of inputs that decide shapes, by name."""
        return {row.name: row.array() for row in self.inputs if row.value is not None}

    @property
    def open_elements(self) -> list[int]:
        """The open elements of values that decide shapes, in the order of inputs."""
        return [
            element
            for row in self.inputs
            if row.value is not None
            for is_open, element in zip(row.is_open, row.array().reshape(-1).tolist(), strict=False)
            if is_open
        ]

    @property
    def closed_values(self) -> Hashable:
        """The values that decide shapes, by name, without their open elements."""
        return tuple((row.name, row.closed_value) for row in self.inputs if row.value is not None)

    def with_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> PlanKey:
        """Return the key for other shapes of the same inputs."""
        rows = (replace(row, shape=shapes[row.name]) for row in self.inputs)
        return PlanKey(tuple(rows), self.inner)

    @property
    def kind(self) -> Hashable:
        """A value that is equal for two keys that differ at most in sizes and in the values that
        decide shapes.
        """
        rows = [(row.name, len(row.shape), row.layout, row.value is None) for row in self.inputs]
        return (*rows, self.inner)

    def distance(self, other: PlanKey) -> float:
        """Return the distance to a key of the same kind: the sum of all sizes' ``|log ratio|``."""
        sizes = zip(chain(*self.shapes.values()), chain(*other.shapes.values()), strict=True)
        return sum(abs(log((a + 1) / (b + 1))) for a, b in sizes)

    @property
    def entry(self) -> dict[str, Layout]:
        """The layouts of the plan's inputs, by name; inputs that decide shapes are left out."""
        return {row.name: row.layout for row in self.inputs if row.value is None}
