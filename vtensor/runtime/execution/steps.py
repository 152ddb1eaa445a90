"""The steps of a plan, which a run executes one after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from libdesc.routine import reference_kernel
from ptensor.buffer import TensorStorage
from ptensor.evaluation import Call, Step
from vtensor.errors import describe
from vtensor.language.records import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class Failure:
    """A function that makes an error message from the error text of a step. It adds the node's name
    and the types and dims of the node's operands.

    Attributes:
        op_name, node: the names of the operator and of the node.
        rows: the element type and dims of each operand, by the operand's role.
        renamed: (dim in ``rows``, dim of the node) for each generated name of a dim.
        numbers: the values of the trace of the call's symbolic sizes, each at the index that is its
            place; empty if the call was not traced.
    """

    op_name: str
    node: str
    rows: Mapping[str, tuple[str, Mapping[str, int]]]
    renamed: tuple[tuple[str, str], ...] = ()
    numbers: Sequence[Any] = ()

    @classmethod
    def of(cls, call: Call) -> Failure:
        """Return the function for errors of the steps of ``call``."""
        operands = zip(call.roles, call.operands, strict=True)
        return cls(call.op_name, call.node, {role: (t.dtype, t.dims) for role, t in operands})

    def __call__(self, text: str) -> str:
        """Return the message: ``text`` with the node's name and its operands' types and dims."""
        names = dict(self.renamed)
        rows = {
            role: (dtype, {names.get(dim, dim): self._number(n) for dim, n in dims.items()})
            for role, (dtype, dims) in self.rows.items()
        }
        return describe(f"{self.op_name} {self.node!r}: {text}", rows)

    def _number(self, size: int) -> int:
        symbolic: Any = size
        return size if type(size) is int else self.numbers[symbolic.place]


@dataclass(eq=False, slots=True)
class Code:
    """The compiled form of a native step; empty until it is compiled.

    Attributes:
        kernel: the library's name for its implementation.
        access: the use of each slot: "read", "write", both or "scratch".
    """

    kernel: str = ""
    access: tuple[str, ...] = ()


class StepRef(NamedTuple):
    """A reference to a native step that depends on symbols, used while a plan is recorded.

    Attributes:
        source: the number of the call kind (a recording shared by equal calls) that makes the step.
            The call kinds of a plan are numbered from 1.
        place: the index of the step on the trace of that call kind.
        now: the step for the current sizes.
    """

    source: int
    place: int
    now: Any

    def __vtensor_step__(self) -> object:
        return self.now.__vtensor_step__()


@dataclass(frozen=True, eq=False)
class RecordedStep:
    """A native step on operands, or a call back into Python.

    Attributes:
        node: the name of the node of the lowered graph that the step belongs to.
        library: the library whose code runs.
        kernel: the library's name for its implementation; ``python`` for a call-back.
        native: the native step; None for a call-back.
        slots: for each slot its storage, or for scratch the number of bytes; for a call-back, the
            storages of all operands.
        callback: the function to call; None for a native step.
        replaces: for an output, the operands whose memory the step may overwrite with that output.
        reword: turns the step's own words into the message of an error that its operands caused.
        code: the compiled form, shared by the steps with the same native step.
    """

    node: str
    library: str
    kernel: str
    native: Step | None
    slots: tuple[TensorStorage | int, ...]
    callback: Callable[[], None] | None = None
    replaces: Mapping[TensorStorage, Sequence[TensorStorage]] = field(default_factory=dict)
    reword: Callable[[str], str] = str
    code: Code = field(default_factory=Code)

    def on(
        self,
        node: str,
        storages: Mapping[TensorStorage, TensorStorage],
        renamed: tuple[tuple[str, str], ...],
    ) -> RecordedStep:
        """Return a copy of this step, with the same native step, for the operands of another node.

        Args:
            node: the other node's name.
            storages: the other node's storage for each storage of this step.
            renamed: (old name, new name) of generated dims, for messages.
        """
        slots = [slot if isinstance(slot, int) else storages[slot] for slot in self.slots]
        replaces = {
            storages[output]: [storages[x] for x in over] for output, over in self.replaces.items()
        }
        reword = self.reword
        if isinstance(reword, Failure):
            reword = Failure(reword.op_name, node, reword.rows, renamed, reword.numbers)
        kernel, code = self.code.kernel, self.code
        return RecordedStep(
            node, self.library, kernel, self.native, tuple(slots), None, replaces, reword, code
        )

    @property
    def is_reference(self) -> bool:
        """True if the library has only its slow reference code for this step."""
        return reference_kernel(self.kernel)
