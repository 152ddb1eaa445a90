"""The call of an invoker in progress, in one of three modes.

PARTIAL stops at the tagger and yields a variant: one layout per operand. NORMAL runs on to the
library. RECORD runs on too, but the library's steps are collected instead of executed. The mode and
the call are context variables: each thread, and each attempt of the dispatcher, has its own.

Source: the paper, sections 4.3 and 5.1.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ptensor.background_work import checkpoint
from ptensor.form import Form
from ptensor.layout import Layout
from vtensor.errors import ContractError, describe
from vtensor.language.cached import cached_property
from vtensor.language.operators import info_of
from vtensor.language.process.interrupts import Unfit
from vtensor.language.records import dataclass, replace

if TYPE_CHECKING:
    from vtensor.language.operators import Follower
    from vtensor.language.tensor import VTensor


class Mode(Enum):
    """What an evaluation does with the code after the tagger."""

    PARTIAL = "partial"
    NORMAL = "normal"
    RECORD = "record"


class Decline(Unfit):  # no error: the dispatcher tries the next library
    """Raised by an invoker before its tagger, or by a guideline, to refuse a call for a reason."""


@dataclass(frozen=True)
class Refusal:
    """A library that did not take a call."""

    priority: int
    library: str
    reason: str


@dataclass(frozen=True)
class Requirement:
    """The layouts that an invoker required of one operand.

    Attributes:
        layouts: one layout, or alternatives in order of preference; empty is ANY.
        file, line: place in the invoker's code.
    """

    layouts: tuple[Layout, ...]
    file: str
    line: int

    @property
    def open(self) -> bool:
        """True if more than one layout would do."""
        return len(self.layouts) != 1

    @property
    def place(self) -> str:
        """File and line, with the path shortened to its last two parts."""
        return f"{'/'.join(Path(self.file).parts[-2:])}:{self.line}"

    def __str__(self) -> str:
        wanted = " or ".join(str(layout) for layout in self.layouts) or "ANY"
        return f"{wanted} ({self.file}:{self.line})"


#: Source of a time: ``measured`` on this machine; ``calibrated``, estimated from speeds that the
#: library reaches on this machine; ``declared``, estimated from what the library declares.
Basis = Literal["measured", "calibrated", "declared"]


@dataclass(frozen=True)
class Variant:
    """One way to run a node, or a node with a run of followers.

    Attributes:
        library: the library whose code runs.
        forms: layout and device of each operand, inputs first.
        requirements: the requirement of each operand; empty if no invoker was asked yet.
        refused: the libraries before it that declined.
        kernel: the library's name for the code, which it gets back with the variant; empty if the
            library chooses.
        ns: nanoseconds of a run; None if unknown.
        basis: source of that time.
        error: the norm of the error that it adds to a result, relative to the result's norm.
        followers: names of the fused nodes, in order.
        reference: True if the library has only reference code for it.
        inexact: True if it is approximate: its results differ by more than the order of sums.
        pieces: variants of the node and of each follower, in order, if followers run by themselves;
            ``forms`` and ``ns`` are then of all of them together.
    """

    library: str
    forms: tuple[Form, ...]
    requirements: tuple[Requirement, ...] = ()
    refused: tuple[Refusal, ...] = ()
    kernel: str = ""
    ns: int | None = None
    basis: Basis = "declared"
    error: float = 0.0
    followers: tuple[str, ...] = ()
    reference: bool = False
    inexact: bool = False
    pieces: tuple[Variant, ...] = ()

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """The layout of each operand, inputs first."""
        return tuple(form.layout for form in self.forms)

    def lying(self, layouts: Sequence[Layout]) -> Variant:
        """Return this variant with operands in other layouts, on the same device."""
        return replace(self, forms=forms_on(self.forms[0].device, layouts))


def forms_on(device: str, layouts: Iterable[Layout]) -> tuple[Form, ...]:
    """Return a form on one device for each layout."""
    return tuple(Form(layout, device) for layout in layouts)


class Step(Protocol):
    """A native library call: any object that gives a ``vtensor.step`` capsule
    (``vtensor/step.h``).
    """

    def __vtensor_step__(self) -> object:
        """Return the capsule; called on any thread, for several steps at once."""


class Routine(Protocol):
    """A library call that an invoker has described before its tagger."""

    @property
    def heavy(self) -> bool:
        """True if arithmetic outweighs the memory that the call touches."""

    @property
    def each(self) -> bool:
        """True if operands for which ANY is asked may differ in layout, where the library confirms
        it.
        """

    @property
    def reference(self) -> bool:
        """True if the library has only reference code for the layouts confirmed last."""

    @property
    def inexact(self) -> bool:
        """True if it is approximate: results differ by more than the order of sums. It needs a
        tolerance above 0.
        """

    def preferred(self, call: Call) -> Mapping[int, Layout | Sequence[Layout]]:
        """Return the layouts that the library would like, by operand index."""

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """Return None if the library takes the call with these layouts, else the reason."""

    def variants(self, call: Call) -> Iterable[Variant]:
        """Return the call's variants that are worth measuring."""


class Evaluation(ABC):
    """One way to evaluate invokers; the resolver and the runtime install theirs."""

    mode: Mode
    #: The error that results may have; at 0 approximate calls are declined.
    tolerance: float = 0.0
    #: Whether operands may be stored in types that round them; no plan counts that error yet.
    rounding: bool = False
    #: Whether variants come from a plan for other sizes: conditions and libraries are asked again.
    confirming: bool = False

    def decided(self, call: Call) -> None:  # noqa: B027  # only probing needs it
        """Take note of a call that has just been decided; its routine, if any, is still set."""

    @abstractmethod
    def emit(self, call: Call, step: Step, slots: Sequence[VTensor | int]) -> None:
        """Run or record a native step on these operands; an integer is a scratch slot of that many
        bytes.
        """

    @abstractmethod
    def share(self, call: Call, source: VTensor, target: VTensor) -> None:
        """Make the target the same bytes as the source."""

    @abstractmethod
    def callback(self, call: Call, run: Callable[[], None]) -> None:
        """Run or record the body of a ``python=True`` invoker, which runs here each time."""


class CallOperand(Protocol):
    """A PTensor, as its call sees it."""

    @property
    def call(self) -> Call:
        """The call of the operand."""

    @property
    def index(self) -> int:
        """Index among the operands of the call, inputs first."""

    @property
    def tensor(self) -> VTensor:
        """The operand, or a view of it."""

    @property
    def role(self) -> str:
        """The operand's role in the operator's declaration."""

    def requirement_or_guideline(self) -> Requirement:
        """Return the invoker's requirement, else the library's wish."""


@dataclass(eq=False)
class Call:
    """One attempt to run an operator with one library's invoker.

    The last ``posted`` inputs are operands of the fused operators; the routine handles them.
    ``converts`` says that the call is a Transform: it may change the encoding, also to one that
    rounds.
    """

    node: str
    op: object
    op_name: str
    library: str
    device: str
    inputs: tuple[VTensor, ...]
    outputs: tuple[VTensor, ...]
    roles: tuple[str, ...]
    evaluation: Evaluation
    python: bool = False
    variant: Variant | None = None
    ptensors: dict[int, CallOperand] = field(default_factory=dict)
    routine: Routine | None = None
    tagged: bool = False
    answers: Mapping[int, Layout | Sequence[Layout]] | None = None
    #: File and line of the invoker.
    place: str = ""
    posted: int = 0
    #: The fused operators, which its invoker runs as well or declines.
    followers: tuple[Follower, ...] = ()
    converts: bool = False
    #: Indices of each operand, by its id.
    _indices: dict[int, list[int]] = field(default_factory=dict)

    @property
    def operands(self) -> tuple[VTensor, ...]:
        """Inputs, then outputs."""
        return self.inputs + self.outputs

    @property
    def partial(self) -> bool:
        """True if this attempt only decides."""
        return self.evaluation.mode is Mode.PARTIAL

    def index(self, tensor: VTensor) -> int:
        """Return the index of the operand that a tensor is, or is a view of.

        Raises:
            ContractError: the tensor is no operand of this call.
        """
        return self._indices_of(tensor)[0]

    def _indices_of(self, tensor: VTensor) -> list[int]:
        """Return the indices of the operands that a tensor is, or is a view of.

        Raises:
            ContractError: the tensor is no operand of this call.
        """
        base = tensor.base if tensor.base is not None else tensor
        if not self._indices:
            for index, operand in enumerate(self.operands):
                self._indices.setdefault(id(operand), []).append(index)
        indices = self._indices.get(id(base))
        if indices is None:
            raise self.misuse(f"{base!r} is no operand of this call")
        return indices

    def place_of_request(self) -> tuple[str, int]:
        """Return file and line of the code that asks for a layout now.

        It is the invoker while that describes a routine, else the caller.
        """
        if self.routine is None:
            return caller_place()
        file, _, line = self.place.rpartition(":")
        return file, int(line)

    def claim(self, tensor: VTensor) -> int:
        """Return the index of the operand of a new PTensor; a value given twice is two operands.

        Raises:
            ContractError: the tensor is no operand, or has its PTensor already.
        """
        indices = self._indices_of(tensor)
        for index in indices:
            if index not in self.ptensors:
                return index
        raise self.misuse(f"operand {self.roles[indices[0]]} already has its PTensor")

    @property
    def fused_operands(self) -> range:
        """Indices of the operands of the fused operators."""
        return range(len(self.inputs) - self.posted, len(self.inputs))

    def check_posted(self) -> None:
        """Check that the invoker has looked at the fused operators: no guideline is asked before.

        Raises:
            Decline: it has not.
        """
        if not set(self.fused_operands) <= self.ptensors.keys():
            raise Decline("its invoker does not look at the fused operators")

    def check_followed(self, taken: Sequence[Follower]) -> None:
        """Check that the call runs all fused operators.

        Raises:
            Decline: it does not.
        """
        if tuple(taken) != self.followers:
            names = ", ".join(info_of(follower.op).name for follower in self.followers)
            raise Decline(f"its invoker does not fuse {names}")

    def finish(self) -> None:
        """Release objects that refer back to this call: memory must not wait for the collector."""
        self.ptensors.clear()
        self.routine = None

    def failure(self, text: str, component: str = "") -> str:
        """Return an error text: node, ``component`` or else the invoker, and one line per
        operand.
        """
        rows = {role: (t.dtype, t.dims) for role, t in zip(self.roles, self.operands, strict=True)}
        place = f" ({self.place})" if self.place else ""
        where = f"{self.op_name} {self.node!r}, {component or f'{self.library} invoker{place}'}"
        return describe(f"{where}: {text}", rows)

    def misuse(self, what: str, at: str = "") -> ContractError:
        """Return the error of an invoker that breaks the contract."""
        where = f" ({at})" if at else f" ({caller()})"
        return ContractError(f"{self.op_name} {self.node!r}, {self.library} invoker: {what}{where}")


_evaluation: ContextVar[Evaluation | None] = ContextVar("vtensor_evaluation", default=None)
_call: ContextVar[Call | None] = ContextVar("vtensor_call", default=None)


def current_evaluation() -> Evaluation:
    """Return the evaluation that is installed in this context.

    Raises:
        ContractError: none is installed: an invoker was called by hand.
    """
    evaluation = _evaluation.get()
    if evaluation is None:
        raise ContractError("no evaluation is installed here: operators run through a Session")
    return evaluation


def current_call() -> Call | None:
    """Return the call in progress in this context, or None."""
    return _call.get()


@contextmanager
def installed(evaluation: Evaluation) -> Iterator[None]:
    """Evaluate invokers in this way inside the block."""
    token = _evaluation.set(evaluation)
    try:
        yield
    finally:
        _evaluation.reset(token)


@contextmanager
def entered(call: Call) -> Iterator[Call]:
    """Make this the call in progress inside the block.

    Raises:
        Stopped: the background work that makes the call is not wanted any more.
    """
    checkpoint()
    token = _call.set(call)
    try:
        yield call
    finally:
        _call.reset(token)


_HERE = Path(__file__).parent
#: Folders whose frames are skipped in the search for the caller: this one and libdesc's own files.
_SKIPPED_FOLDERS = frozenset({_HERE, _HERE.parent / "libdesc"})


def caller() -> str:
    """Return ``file:line`` of the nearest frame outside the framework's own floors."""
    file, line = caller_place()
    return f"{file}:{line}"


def caller_place() -> tuple[str, int]:
    """Return file and line of the nearest frame outside the framework's own floors."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


@cache
def _is_ours(file: str) -> bool:
    return Path(file).parent in _SKIPPED_FOLDERS
