"""``lib_tagger``, and what an invoker may do around it: guidelines, steps, sharing memory.

Source: the paper, sections 4.3 and 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ptensor.call import (
    Basis,
    Call,
    CallOperand,
    Decline,
    Evaluation,
    Mode,
    Refusal,
    Requirement,
    Routine,
    Step,
    Variant,
    caller,
    caller_place,
    current_call,
    current_evaluation,
    entered,
    forms_on,
    installed,
)
from ptensor.layout import Layout
from ptensor.libraries import LIBRARIES, library
from ptensor.rows import candidate_rows
from vtensor.errors import ContractError, LayoutError

if TYPE_CHECKING:
    from vtensor.language.operators import Follower

__all__ = [
    "Basis",
    "Call",
    "Decline",
    "Evaluation",
    "Mode",
    "Refusal",
    "Requirement",
    "Routine",
    "Step",
    "Variant",
    "caller",
    "caller_place",
    "check_tagged",
    "current_call",
    "current_evaluation",
    "emit",
    "entered",
    "forms_on",
    "guideline_of",
    "installed",
    "lib_tagger",
    "share",
]

#: How many of the refused rows of layouts the text of a Decline lists, so that it stays readable.
MAX_REASONS = 8


def lib_tagger(
    name: str,
    inputs: Sequence[CallOperand],
    outputs: Sequence[CallOperand],
    follow: Sequence[Follower] = (),
) -> bool:
    """Report to the framework which layouts the invoker requires, right before the library would be
    called.

    Args:
        name: the library that is about to be called.
        inputs, outputs: every PTensor of the call.
        follow: the fused operators that the call computes as well: ``ctx.followers``, all of them.

    Returns:
        True in partial evaluation: return at once. False otherwise: call the library.

    Raises:
        ContractError: the library is not the invoker's, an operand is missing, ``lib_tagger`` is
            called twice, or the layouts required are not those decided before; the message names
            file and line.
        Decline: the library takes no row of layouts, or not the one that was decided; or a fused
            operator is missing in ``follow``.

    Source: the paper, section 4.3, ``libTagger``.
    """
    call = current_call()
    if call is None:
        raise ContractError(f"lib_tagger({name!r}) outside a call ({caller()})")
    _check_tagger(call, name, [*inputs, *outputs])
    call.check_followed(follow)
    if call.variant is not None:
        _check_decided(call, call.variant)
        is_repeated = call.partial or call.evaluation.confirming
        if is_repeated and (reason := _refusal(call, call.variant.layouts)):
            raise Decline(reason)
        if call.evaluation.confirming and _is_reference_only(call, call.variant):
            raise Decline("has reference code alone for these sizes")
        call.tagged = True
        return call.partial
    if not call.partial:
        raise call.misuse("nothing was decided for this call: resolve the graph first")
    requirements = _requirements(call)
    layouts = _resolve(call, requirements)
    forms, routine = forms_on(call.device, layouts), call.routine
    pairs = zip(call.operands, layouts, strict=True)
    rounds = not call.converts and any(layout.rounds(tensor.dtype) for tensor, layout in pairs)
    reference = routine is not None and routine.reference
    inexact = rounds or (routine is not None and routine.inexact)
    call.variant = Variant(name, forms, requirements, reference=reference, inexact=inexact)
    call.tagged = True
    call.evaluation.decided(call)
    return True


def _check_tagger(call: Call, name: str, operands: Sequence[CallOperand]) -> None:
    """Check that ``lib_tagger`` is called once, for the invoker's library, with all PTensors.

    Args:
        call: the call in progress.
        name: the library that ``lib_tagger`` is called with.
        operands: the PTensors that ``lib_tagger`` is called with.

    Raises:
        ContractError: ``lib_tagger`` is called a second time, for another library, without a
            PTensor of the call, or with one of another call.
        Decline: an operand of a fused operator has no PTensor.
    """
    if call.tagged:
        raise call.misuse("lib_tagger is called a second time")
    if name != call.library:
        raise call.misuse(
            f"lib_tagger says {name!r}, the invoker is registered for {call.library!r}"
        )
    for tensor in operands:
        if getattr(tensor, "call", None) is not call:
            raise call.misuse(f"lib_tagger is given {tensor!r}, which is no PTensor of this call")
    call.check_posted()
    missing = set(range(len(call.operands))) - {tensor.index for tensor in operands}
    missing -= call.ptensors.keys() & set(call.fused_operands)
    if missing:
        roles = ", ".join(call.roles[i] for i in sorted(missing))
        raise call.misuse(f"lib_tagger is not given the PTensor of {roles}")


def _requirements(call: Call) -> tuple[Requirement, ...]:
    """Return the requirement of each operand of the call, inputs first."""
    return tuple(call.ptensors[i].requirement_or_guideline() for i in range(len(call.operands)))


def _resolve(call: Call, requirements: Sequence[Requirement]) -> tuple[Layout, ...]:
    """Return the first row of layouts that fits the requirements and that the library takes.

    A row has a layout for each operand of the call. ``requirements`` has what the invoker required
    of each operand.

    Raises:
        Decline: there is no such row. The text has the library's reason for each refused row.
    """
    reasons: list[str] = []
    for row in candidate_rows(call, requirements):
        reason = _refusal(call, row)
        if reason is None:
            return row
        reasons.append(f"{' '.join(str(layout) for layout in row)}: {reason}")
    no_row = "no one layout of its ANY operands suits all of its views"
    named = [*dict.fromkeys(reasons)]
    if len(named) > MAX_REASONS:
        named[MAX_REASONS:] = [f"and {len(named) - MAX_REASONS} more combinations"]
    raise Decline("; ".join(named) or no_row)


def _refusal(call: Call, row: tuple[Layout, ...]) -> str | None:
    """Return why the call cannot run with the layouts ``row``, one per operand; None if it can.

    The library is asked last. Before that, approximate calls are refused at tolerance 0, and
    layouts that round an operand unless ``rounding`` of the evaluation is True. A Transform may
    round. So may a call with a tolerance, whose measured error includes the rounding of all its
    operands.
    """
    inexact = call.routine is not None and call.routine.inexact
    if inexact and not call.evaluation.tolerance:
        return "its results are inexact; the plan's tolerance is 0"
    if not (call.evaluation.rounding or call.evaluation.tolerance or call.converts):
        for role, tensor, layout in zip(call.roles, call.operands, row, strict=True):
            if layout.rounds(tensor.dtype):
                return f"{role} in {layout} rounds {tensor.dtype}; the session's tolerance is 0"
    registered = LIBRARIES.get(call.library)
    return registered.confirm(call, row) if registered is not None else None


def _is_reference_only(call: Call, variant: Variant) -> bool:
    """Return whether the library has only slow reference code for the call now, although it had
    faster code when ``variant`` was decided.
    """
    return call.routine is not None and call.routine.reference and not variant.reference


def _check_decided(call: Call, variant: Variant) -> None:
    """Check that each layout of a variant is among those that the invoker requires now.

    Raises:
        ContractError: the invoker requires other layouts of an operand.
    """
    for index, decided in enumerate(variant.layouts):
        requirement = call.ptensors[index].requirement_or_guideline()
        if requirement.layouts and decided not in requirement.layouts:
            raise call.misuse(
                f"{call.roles[index]} was resolved to {decided}, the invoker now asks for "
                f"{' or '.join(str(layout) for layout in requirement.layouts)}",
                at=f"{requirement.file}:{requirement.line}",
            )


def check_tagged(call: Call, what: str) -> None:
    """Check that the call is past its ``lib_tagger``, so that it may call the library.

    Args:
        call: the call in progress.
        what: the action that is attempted, as a text for the message.

    Raises:
        ContractError: the call is in partial evaluation, or its ``lib_tagger`` has not run.
    """
    if call.partial:
        why = "lib_tagger returned True: return there" if call.tagged else "call lib_tagger first"
        raise call.misuse(f"{what} in partial evaluation; {why}")
    if not call.tagged:
        raise call.misuse(f"{what} before lib_tagger")


def emit(step: Step, slots: Sequence[CallOperand | int]) -> None:
    """Call a native library: a step on PTensors, executed now or recorded.

    Args:
        step: object that gives the ``vtensor.step`` capsule.
        slots: the step's arguments in order; an integer asks for scratch memory of that many bytes.

    Raises:
        ContractError: outside an invoker, before its ``lib_tagger``, or in partial evaluation.
    """
    call = current_call()
    if call is None:
        raise ContractError(f"a native step outside a call ({caller()})")
    check_tagged(call, "a native step")
    for slot in slots:
        if not isinstance(slot, int) and getattr(slot, "call", None) is not call:
            raise call.misuse(f"a native step is given {slot!r}, which is no PTensor of this call")
    operands = [slot if isinstance(slot, int) else call.operands[slot.index] for slot in slots]
    call.evaluation.emit(call, step, operands)


def share(source: CallOperand, target: CallOperand) -> None:
    """Let an output use the memory of an input, under other dims: nothing is copied, no step runs.

    Args:
        source: the input.
        target: the output.

    Raises:
        ContractError: outside an invoker, before its ``lib_tagger``, or in partial evaluation; or
            input and output differ in number of bytes.
    """
    call = current_call()
    if call is None:
        raise ContractError(f"share outside a call ({caller()})")
    check_tagged(call, "share")
    try:
        call.evaluation.share(call, call.operands[source.index], call.operands[target.index])
    except LayoutError as error:
        raise call.misuse(f"share of {source.role} with {target.role}: {error}") from None


def guideline_of(call: Call, name: str) -> Mapping[int, Layout | Sequence[Layout]]:
    """Return a library's guideline for the call: layouts by operand index, inputs first.

    The library is asked once per call; ``call.answers`` keeps the result.

    Raises:
        ContractError: the guideline is no mapping, or answers for an operand that does not exist,
            or an answer is no layout of the operand's dims.
        Decline: an operand of a fused operator has no PTensor.
    """
    if call.answers is None:
        call.check_posted()
        asked_library = library(name)
        answers = asked_library.guideline(call)
        if not isinstance(answers, Mapping):
            raise call.misuse(
                f"the guideline of {name} answers {answers!r}, which is no mapping",
                at=asked_library.guideline_place,
            )
        for index, answer in answers.items():
            if not _is_valid_answer(call, index, answer):
                role = call.roles[index] if index in range(len(call.roles)) else "no operand"
                what = f"the guideline of {name} answers {answer!r} for operand {index} ({role})"
                raise call.misuse(what, at=asked_library.guideline_place)
        call.answers = answers
    return call.answers


def _is_valid_answer(call: Call, index: object, answer: object) -> bool:
    """Return whether a guideline's answer for operand ``index`` is valid: a layout of the operand's
    dims, ANY, or several of these.
    """
    if not isinstance(index, int) or not 0 <= index < len(call.operands):
        return False
    layouts = (answer,) if isinstance(answer, Layout) else answer
    if not isinstance(layouts, Sequence) or not layouts:
        return False
    dims = call.operands[index].dims.keys()
    return all(
        isinstance(layout, Layout) and (layout.is_any or set(layout.dims) == dims)
        for layout in layouts
    )
