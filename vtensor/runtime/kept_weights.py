"""The constants of a plan as an entry of the cache says them."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.native_trace import ConstantReader, build_of, native_module
from optimizer.computed import times
from ptensor.buffer import ALIGNMENT, Buffer, TensorStorage
from ptensor.layout import Layout
from resolver.values import Value
from vtensor.language.imported import logger
from vtensor.language.interrupts import MALFORMED, pass_signals
from vtensor.language.symbolic_arrays import StoredArray
from vtensor.language.trace import Rows
from vtensor.runtime.executor import Executor
from vtensor.runtime.kept_packing import KeptPacking, factor_of, part_of, taken_of
from vtensor.runtime.weights import Packed
from vtensor.runtime.workspace import Workspace

if TYPE_CHECKING:
    from types import ModuleType

    from optimizer.originals import Original, Step
    from vtensor.frontends.surface import Surface

Array = np.ndarray[Any, Any]
Data = dict[str, Any]

_log = logger(__name__)


class KeptWeights:
    """Constants, as an entry says them.

    Args:
        data, blob: what the entry holds.
        surface: the model.
        workspace: what plans share.

    Attributes:
        blob: the bytes.
        memory: what is packed, once that was made.
    """

    def __init__(self, data: Data, blob: bytes, surface: Surface, workspace: Workspace) -> None:
        self._data, self.blob = data, np.frombuffer(blob, np.uint8)
        self._surface, self._workspace = surface, workspace
        self._modules: dict[str, ModuleType] = {}
        self._lent: list[Packed] | None = None
        self._places: dict[int, Array] = {}
        self.memory: Array = np.empty(0, np.uint8)

    def module(self, name: str) -> ModuleType:
        """A native module.

        Raises:
            ValueError: it is none, or another build of it.
        """
        if name not in self._modules:
            self._modules[name] = found = native_module(name)
            if build_of(found) != self._data["builds"][name]:
                raise ValueError(f"{name} is another build")
        return self._modules[name]

    def natives(self) -> list[Any]:
        """Return the native things of the entry, by their places.

        Raises:
            Exception: of any kind, if a row is none or native code refuses it.
        """
        return self._values("natives")

    def _values(self, rows: str) -> list[Any]:
        values = Rows.of(self._data[rows], ConstantReader(self.module)).run([])
        if values is None:
            raise ValueError("native code refuses what an entry says")
        return values

    def trace_array(self, data: Any) -> Any:
        """Return an array of a trace's constants, of ``WeightNotes``.

        Raises:
            Exception: of any kind, if it is none.
        """
        if "array" in data:
            name, steps = data["array"]
            return StoredArray(self._original(name, steps))
        dtype, shape, begin = data["bytes"]
        count = prod(map(int, shape)) * np.dtype(dtype).itemsize
        return taken_of(self.blob, begin, count).view(dtype).reshape(shape)

    def made(
        self, natives: Sequence[Any], others: Mapping[Hashable, Array] | None = None
    ) -> list[Array]:
        """The memory of each constant, packed now.

        Args:
            natives: the native things.
            others: what is packed already, as ``packed`` says it: of these nothing is.

        Raises:
            Exception: of any kind, where it is none here.
        """
        from vtensor.runtime import _replay

        data, others = self._data, others or {}
        small = {begin: (nbytes, at) for begin, nbytes, at in data["small"]}
        large = {row["begin"]: row for row in data["large"]}
        rooms, end, every = dict[int, tuple[int, int]](), 0, 0
        for begin in sorted([*small, *large]):
            nbytes = int(small[begin][0] if begin in small else large[begin]["nbytes"])
            room = -(-nbytes // ALIGNMENT) * ALIGNMENT
            if begin != every or not 0 <= room <= self._workspace.max_bytes:
                raise ValueError("so many weights are none")
            every += room
            if begin in large and (found := others.get(self._what(large[begin]))) is not None:
                self._places[begin] = found
            else:
                rooms[begin] = end, nbytes
                end += room
        self._check_places(sorted([*small, *large]))
        if every != data["weights"] or end > self._workspace.max_bytes:
            raise ValueError("so many weights are none")
        self.memory = memory = _replay.Arena(end).memory()
        for begin, (room, nbytes) in rooms.items():
            self._places[begin] = taken_of(memory, room, nbytes)
            if begin in small:
                self._places[begin][:] = taken_of(self.blob, small[begin][1], nbytes)
        with Executor.alone():
            alone = self._values("alone")
        packing = KeptPacking(self._original, self.blob, natives, alone, self._workspace.max_bytes)
        try:
            for begin, row in large.items():
                if begin in rooms:
                    packing.pack(self._places[begin], **row)
            packing.finish()
        finally:
            packing.close()
        return [self._constant(*row) for row in data["constants"]]

    def _check_places(self, begins: list[int]) -> None:
        """See that each packed constant is used once, in order, and each of the bytes for one.

        Args:
            begins: where packed constants begin.

        Raises:
            ValueError: that is not so.
        """
        data = self._data
        if [row[0] for row in data["constants"] if isinstance(row[0], int)] != begins:
            raise ValueError("a packed constant is none of the plan's")
        parts = [(at, nbytes) for _, nbytes, at in data["small"]]
        for row in data["large"]:
            parts += [(one[1], 8 * prod(one[0])) for one in row["changes"] if not part_of(one)]
        end = 0
        for at, nbytes in sorted(parts):
            if not end <= at <= at + nbytes <= data["strategy"]:
                raise ValueError("two constants have the same bytes")
            end = at + nbytes

    @property
    def packed(self) -> dict[Hashable, Array]:
        """The large arrays as they are packed, by what was made of which."""
        return {self._what(row): self._places[row["begin"]] for row in self._data["large"]}

    def _what(self, row: Data) -> Hashable:
        """What is made of which large array."""
        changes = [
            one if part_of(one) else (one[0], factor_of(self.blob, *one).tobytes().hex())
            for one in row["changes"]
        ]
        same = ("name", "steps", "kind", "factor")
        return json.dumps([changes, *(row[one] for one in same)])

    def array(self, name: str) -> Array:
        """A large array."""
        return self._surface.large[name].now()

    def _constant(self, begin: int | str, *nbytes: int) -> Array:
        """A constant: packed, or as it is read."""
        if isinstance(begin, int):
            found = self._places[begin]
            if [found.nbytes] != [*nbytes]:
                raise ValueError("a constant is larger than what is packed")
            return found
        array = self.array(begin)
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def lend(self) -> None:
        """Let plans of nodes have what is packed, as long as somebody has this."""
        if self._lent is not None:
            return
        self._lent = []
        try:
            self._lent.extend(self._lending())
        except MemoryError:
            raise
        except MALFORMED as why:  # of any kind, of whatever an entry says: they are packed again
            pass_signals(why)
            _log.debug("no weights are lent: %s", why)

    def _lending(self) -> Iterator[Packed]:
        for row in self._data["large"]:
            own = self._original(row["name"], row["steps"])
            change: Hashable = None
            for one in row["changes"]:
                change = change, part_of(one) or times(factor_of(self.blob, *one))
            room = Buffer(self._places[row["begin"]])
            storage = TensorStorage(*kind_of(*row["kind"]), room, constant=True)
            yield self._workspace.weights.lend(own, change, storage, self.memory)

    def _original(self, name: str, steps: list[Step]) -> Original:
        """Return the large array ``name`` in other orders of axes and shapes."""
        return self._surface.large[name].derived(steps)


def value_row(value: Value) -> list[Any]:
    """A value as an entry holds it."""
    return [value.name, *kind_row(value), value.constant]


def kind_row(of: Value | TensorStorage) -> list[Any]:
    """What a value or its memory is."""
    dims = of.dims if isinstance(of, Value) else of.extents
    return [of.dtype, [*dims.items()], str(of.layout)]


def kind_of(dtype: str, dims: list[Any], layout: str) -> tuple[str, dict[str, int], Layout]:
    """What ``kind_row`` says."""
    return dtype, {str(dim): int(size) for dim, size in dims}, Layout(layout)
