"""What a plan is made of: the steps that a run does, one after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from libdesc.routine import reference_kernel
from ptensor.buffer import TensorStorage
from ptensor.evaluation import Step


@dataclass(frozen=True, eq=False)
class RecordedStep:
    """One thing that a run does: a native step on these operands, or a call back into Python.

    Attributes:
        node: the node of the lowered graph that it belongs to.
        library: whose code runs.
        kernel: the library's name for its implementation; ``python`` for a call-back.
        native: the step, or None for a call-back.
        slots: storages, and sizes in bytes of scratch slots; a call-back's are all operands.
        callback: what to call, or None for a native step.
        replaces: for an output, the operands over which the step may write it.
        told: the message of an error that the step's operands are to blame for, from the step's
            own words.
    """

    node: str
    library: str
    kernel: str
    native: Step | None
    slots: tuple[TensorStorage | int, ...]
    callback: Callable[[], None] | None = None
    replaces: Mapping[TensorStorage, Sequence[TensorStorage]] = field(default_factory=dict)
    told: Callable[[str], str] = str

    @property
    def is_reference(self) -> bool:
        """The library has nothing better than its reference code for this."""
        return reference_kernel(self.kernel)
