"""The call of an invoker in progress, in one of three modes.

In mode PARTIAL the call ends at ``lib_tagger``; its result is a variant, with one layout per
operand. In mode NORMAL the library is then called. In mode RECORD it is called too, but its steps
are collected instead of executed. The mode and the call are context variables: each thread, and
each attempt of the dispatcher, has its own.

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
    """What an evaluation does with the invoker's code after ``lib_tagger``: skip it, run it, or run
    it and collect its steps.
    """

    PARTIAL = "partial"
    NORMAL = "normal"
    RECORD = "record"


class Decline(Unfit):  # not an error: the dispatcher tries the next library
    """Raised to refuse a call: by an invoker before it calls ``lib_tagger``, or by a library's
    guideline. The text is the reason.
    """


@dataclass(frozen=True)
class Refusal:
    """A library that declined a call, or was not asked about it.

    Attributes:
        priority: the library's priority for the operator.
        library: the library's name.
        reason: why it did not take the call.
    """

    priority: int
    library: str
    reason: str


@dataclass(frozen=True)
class Requirement:
    """The layouts that an invoker required of one operand.

    Attributes:
        layouts: one layout, or alternatives in order of preference. Empty if the invoker asked for
            ``Layout.ANY``: it takes any layout.
        file, line: where the invoker's code states the requirement.
    """

    layouts: tuple[Layout, ...]
    file: str
    line: int

    @property
    def open(self) -> bool:
        """True if more than one layout would do: there are alternatives, or it is ANY."""
        return len(self.layouts) != 1

    @property
    def place(self) -> str:
        """``file:line``, with the path shortened to its last two parts."""
        return f"{'/'.join(Path(self.file).parts[-2:])}:{self.line}"

    def __str__(self) -> str:
        wanted = " or ".join(str(layout) for layout in self.layouts) or "ANY"
        return f"{wanted} ({self.file}:{self.line})"


#: Where a time comes from. ``measured``: it was measured on this machine. ``calibrated``: it is
#: estimated from speeds that the library reaches on this machine. ``declared``: it is estimated
#: from speeds that the library's description declares.
Basis = Literal["measured", "calibrated", "declared"]


@dataclass(frozen=True)
class Variant:
    """One way to run a node, alone or together with followers that are fused into it.

    Attributes:
        library: the library whose code runs.
        forms: layout and device of each operand of the node and its followers, inputs first.
        requirements: the requirement of each operand; empty if no invoker was asked yet.
        refused: the libraries that declined the call, or over which ``library`` was chosen, each
            with the reason.
        kernel: the library's name of its kernel, by which it finds the kernel again; empty if the
            library chooses one itself.
        ns: time of one execution in nanoseconds; None if unknown.
        basis: where ``ns`` comes from, see ``Basis``.
        error: the norm of the error that the variant adds to a result, relative to the result's
            norm.
        followers: names of the fused nodes, in order.
        reference: True if the library has only reference code for the variant, which is slow.
        inexact: True if the variant is approximate: its results differ by more than the order of
            sums.
        pieces: empty if the node and its followers run in one step. Else the variants of the node,
            which may have followers fused, and of each other follower, in order: each runs in a
            step of its own, and ``forms`` and ``ns`` are for all of them together.
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
        """Return this variant with other layouts of its operands, on the same device.

        Args:
            layouts: a layout for each operand, inputs first.
        """
        return replace(self, forms=forms_on(self.forms[0].device, layouts))


def forms_on(device: str, layouts: Iterable[Layout]) -> tuple[Form, ...]:
    """Return a form on one device for each layout."""
    return tuple(Form(layout, device) for layout in layouts)


class Step(Protocol):
    """A native library call: any object that gives a ``vtensor.step`` capsule
    (``vtensor/step.h``).
    """

    def __vtensor_step__(self) -> object:
        """Return the capsule of the native step.

        Called on any thread, and for different steps concurrently.
        """


class Routine(Protocol):
    """The description of a library call. An invoker returns it; only after ``lib_tagger`` is the
    call made.
    """

    @property
    def heavy(self) -> bool:
        """True if the arithmetic of the call outweighs its memory accesses."""

    @property
    def each(self) -> bool:
        """True if operands for which the invoker asks for ANY may get different layouts.

        The library still has to confirm the combination. If False, these operands share one layout.
        """

    @property
    def reference(self) -> bool:
        """True if the library has only reference code for the layouts confirmed last."""

    @property
    def inexact(self) -> bool:
        """True if the call is approximate: results differ by more than the order of sums. Such a
        call needs a tolerance above 0.
        """

    def preferred(self, call: Call) -> Mapping[int, Layout | Sequence[Layout]]:
        """Return the layouts that the library prefers for operands of the call, by operand
        index.
        """

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """Return None if the library takes the call with these layouts, else the reason why not.

        Args:
            call: the call.
            row: a layout for each operand of the call.
        """

    def variants(self, call: Call) -> Iterable[Variant]:
        """Return the call's variants that are worth measuring."""


class Evaluation(ABC):
    """A way to evaluate invokers, such as partial evaluation or recording. ``installed`` puts one
    in place.
    """

    mode: Mode
    #: The largest relative error that results may have; at 0 approximate calls are declined.
    tolerance: float = 0.0
    #: True if operands may be stored in types that round them. No plan accounts for that error.
    rounding: bool = False
    #: True if variants come from a plan for other sizes. The conditions of invokers are then
    #: checked again, and libraries are asked again whether they take their calls.
    confirming: bool = False

    def decided(self, call: Call) -> None:  # noqa: B027  # only probing needs it
        """Take note of a call whose variant has just been decided. ``call.routine`` is still
        set.
        """

    @abstractmethod
    def emit(self, call: Call, step: Step, slots: Sequence[VTensor | int]) -> None:
        """Execute a native step, or record it.

        Args:
            call: the call in progress.
            step: the step.
            slots: the step's arguments in order. Each is an operand, or the number of bytes of
                scratch memory that the step needs there.
        """

    @abstractmethod
    def share(self, call: Call, source: VTensor, target: VTensor) -> None:
        """Let ``target``, an output of the call, use the memory of ``source``, an input."""

    @abstractmethod
    def callback(self, call: Call, run: Callable[[], None]) -> None:
        """Call ``run``, the body of an invoker that computes in Python (``python=True``), or record
        a step that calls it in each run of the plan.
        """


class CallOperand(Protocol):
    """An operand of a call in progress, that is, a PTensor."""

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
        """Return the invoker's requirement for the operand, else the library's guideline."""


@dataclass(eq=False)
class Call:
    """One attempt to run an operator by one library's invoker.

    Attributes:
        node, op, op_name: the node's name, its operator, and the operator's name.
        library: the library whose invoker is called.
        device: the device that the call runs on.
        inputs, outputs: the operands.
        roles: name of each operand in the operator's declaration, inputs first.
        evaluation: the evaluation that makes the call.
        python: True if the invoker is declared with ``python=True``.
        variant: the decided variant; None until ``lib_tagger`` decides it.
        ptensors: the PTensors made so far, by operand index.
        routine: the routine that the invoker described; None without one.
        tagged: True once ``lib_tagger`` has been called.
        answers: the layouts that the library's guideline returned, by operand index; None until it
            is asked.
        place: file and line of the invoker.
        posted: how many of ``inputs`` are operands of the fused operators; they are the last ones.
        followers: the fused operators. The invoker has to run all of them as well, or decline.
        converts: True if the call is a Transform. A Transform may store the elements in another
            encoding, even one that rounds them.
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
    place: str = ""
    posted: int = 0
    followers: tuple[Follower, ...] = ()
    converts: bool = False
    #: Indices of each operand, by the ``id`` of its VTensor; filled at the first use.
    _indices: dict[int, list[int]] = field(default_factory=dict)

    @property
    def operands(self) -> tuple[VTensor, ...]:
        """The inputs of the call, then its outputs."""
        return self.inputs + self.outputs

    @property
    def partial(self) -> bool:
        """True in partial evaluation: the call only decides its variant."""
        return self.evaluation.mode is Mode.PARTIAL

    def index(self, tensor: VTensor) -> int:
        """Return the index of an operand of this call, inputs first.

        Args:
            tensor: the operand, or a view of it.

        Raises:
            ContractError: the tensor is no operand of this call.
        """
        return self._indices_of(tensor)[0]

    def _indices_of(self, tensor: VTensor) -> list[int]:
        """Return the indices of an operand of this call, inputs first; several if a value is passed
        more than once.

        Args:
            tensor: the operand, or a view of it.

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
        """Return file and line to name as the origin of a request for a layout.

        If the invoker has returned a routine, it is the place of the invoker, because the routine
        states the layouts. Otherwise it is the code that is running, ``caller_place()``.
        """
        if self.routine is None:
            return caller_place()
        file, _, line = self.place.rpartition(":")
        return file, int(line)

    def claim(self, tensor: VTensor) -> int:
        """Return the index of the operand for which a new PTensor of ``tensor`` is made.

        A value that is passed twice is two operands: the first PTensor of it is for the first one,
        the second PTensor for the second one.

        Raises:
            ContractError: the tensor, or the tensor that it is a view of, is no operand, or has its
                PTensor already.
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
        """Check that the invoker has made a PTensor of each operand of the fused operators.

        Raises:
            Decline: one of these operands has no PTensor.
        """
        if not set(self.fused_operands) <= self.ptensors.keys():
            raise Decline("its invoker does not look at the fused operators")

    def check_followed(self, taken: Sequence[Follower]) -> None:
        """Check that the call runs all fused operators.

        Args:
            taken: the fused operators that the invoker gives to ``lib_tagger``.

        Raises:
            Decline: ``taken`` differs from ``followers``.
        """
        if tuple(taken) != self.followers:
            names = ", ".join(info_of(follower.op).name for follower in self.followers)
            raise Decline(f"its invoker does not fuse {names}")

    def finish(self) -> None:
        """Release the PTensors and other objects that refer back to this call.

        Otherwise reference cycles would keep memory until Python's garbage collector runs.
        """
        self.ptensors.clear()
        self.routine = None

    def failure(self, text: str, component: str = "") -> str:
        """Return the message of an error in this call: the node, the component, ``text``, and one
        line per operand.

        Args:
            text: what is wrong.
            component: the name of what fails, such as a handler; empty for the invoker.
        """
        rows = {role: (t.dtype, t.dims) for role, t in zip(self.roles, self.operands, strict=True)}
        place = f" ({self.place})" if self.place else ""
        where = f"{self.op_name} {self.node!r}, {component or f'{self.library} invoker{place}'}"
        return describe(f"{where}: {text}", rows)

    def misuse(self, what: str, at: str = "") -> ContractError:
        """Return the error of an invoker that breaks the contract of invokers.

        Args:
            what: what is wrong.
            at: ``file:line`` of the fault; empty is ``caller()``.
        """
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
    """Return the call in progress in this context; None outside an invoker."""
    return _call.get()


@contextmanager
def installed(evaluation: Evaluation) -> Iterator[None]:
    """Install ``evaluation``: invokers called inside the block are evaluated in its way."""
    token = _evaluation.set(evaluation)
    try:
        yield
    finally:
        _evaluation.reset(token)


@contextmanager
def entered(call: Call) -> Iterator[Call]:
    """Make ``call`` the current call inside the block, and yield it.

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
#: Folders whose frames are skipped in the search for the caller: ptensor and libdesc, without the
#: folders inside these.
_SKIPPED_FOLDERS = frozenset({_HERE, _HERE.parent / "libdesc"})


def caller() -> str:
    """Return ``file:line`` of the nearest frame whose file is not directly in the folder ptensor or
    libdesc.
    """
    file, line = caller_place()
    return f"{file}:{line}"


def caller_place() -> tuple[str, int]:
    """Return file and line of the nearest frame whose file is not directly in the folder ptensor or
    libdesc.
    """
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


@cache
def _is_ours(file: str) -> bool:
    return Path(file).parent in _SKIPPED_FOLDERS
