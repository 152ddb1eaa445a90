"""Generated dispatchers. The dispatcher of an operator checks the parameters and dims of a call,
then offers the call to one library after another, by priority or in the session's order.

``dispatcher_source`` returns the text and ``dispatcher`` compiles that very text. The text is made
from the registry: a new invoker is in it without further code, and a removed one is not.

Source: the paper, sections 2.2 and 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from libdesc.invokers import InvokerFunction, InvokerInfo, When
from libdesc.preferences import EVERY, Preferences
from libdesc.registry import Registry, ready
from libdesc.routine import described, sides
from ptensor.evaluation import (
    Call,
    Decline,
    Mode,
    Refusal,
    Variant,
    current_evaluation,
    entered,
    lib_tagger,
)
from ptensor.tensor import PTensor
from vtensor.errors import (
    DimError,
    GraphError,
    InvokerError,
    NoInvokerError,
    VTensorError,
    describe,
)
from vtensor.language.checks import check_source, compile_check, compile_text
from vtensor.language.failures import place_of, raised
from vtensor.language.operators import OPERATORS, Context, info_of, label_of
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass, replace
from vtensor.language.table import OperatorInfo
from vtensor.language.tensor import CPU, VTensor

Dispatch = Callable[["DispatchContext", object, Sequence[VTensor], Sequence[VTensor]], None]


@dataclass
class DispatchContext(Context):
    """The context in which the ``compute`` of a node calls libraries.

    Attributes:
        variant: the variant chosen for the node; None until a library has taken the call.
        preferences: which libraries may take the node, and the order in which they are asked.
    """

    variant: Variant | None = None
    preferences: Preferences = EVERY

    def dispatch(self, op: object, inputs: Sequence[VTensor], outputs: Sequence[VTensor]) -> None:
        """Call the generated dispatcher of ``op`` for the context's device."""
        self.retype(outputs)
        dispatcher(info_of(op).name, self.device)(self, op, inputs, outputs)

    def retype(self, outputs: Sequence[VTensor]) -> None:
        """Give the first output the element type of the last follower's output."""
        if self.followers:
            outputs[0].dtype = self.followers[-1].gives or outputs[0].dtype


def dispatcher(op: str, device: str = CPU) -> Dispatch:
    """Return the compiled dispatcher of an operator on a device.

    It is cached, and generated again if the registry has changed.

    Raises:
        GraphError: no operator has this name.
    """
    registry = ready()
    version = registry.version
    cached = registry.dispatchers.get((op, device))
    if cached is not None and cached[0] == version:
        return cached[1]
    info = _operator(op)
    text, names = _generate(registry, info, device)
    names |= {f"check_{op}": compile_check(info.check), "invoke": _invoke()}
    code = compile_text(text, f"<generated dispatcher of {op} on {device}>", names)
    function: Dispatch = code[f"dispatch_{op}"]
    registry.dispatchers[op, device] = (version, function)
    return function


def dispatcher_source(op: str, device: str = CPU) -> str:
    """Return the text of an operator's dispatcher, exactly as it is compiled.

    It has four parts: the function that checks the call, the function ``invoke``, which is the same
    in all dispatchers, the list of libraries by priority, and the function that asks them in turn.

    Raises:
        GraphError: no operator has this name.
    """
    info = _operator(op)
    dispatch, _ = _generate(ready(), info, device)
    return "\n\n".join([check_source(info.check), _INVOKE, dispatch])


@cache
def _invoke() -> Callable[..., None]:
    used = (PTensor, described, lib_tagger, sides)
    names = {value.__name__: value for value in used}
    function: Callable[..., None] = compile_text(_INVOKE, "<generated invoke>", names)["invoke"]
    return function


def _operator(op: str) -> OperatorInfo:
    ready()
    if op not in OPERATORS:
        raise GraphError(f"no operator {op!r}; operators are {', '.join(sorted(OPERATORS))}")
    return OPERATORS[op]


def _generate(registry: Registry, info: OperatorInfo, device: str) -> tuple[str, dict[str, Any]]:
    names: dict[str, Any] = {
        "Candidate": Candidate,
        "attempt": attempt,
        "no_invoker": no_invoker,
    }
    rows = registry.candidates(info.name, device)
    for _, row in rows:
        names |= {f"describe_{row.library}": row.function, f"when_{row.library}": row.when}
    lines = [
        "CANDIDATES = [  # by priority",
        *(f"    {line}" for priority, row in rows for line in _candidate(priority, row)),
        "]",
        "",
        "",
        f"def dispatch_{info.name}(ctx, op, inputs, outputs):",
        f'    """{info.name} on {device}: the first library that takes the call."""',
        f"    check_{info.name}(ctx.node, op, inputs, outputs)",
        "    refused = []",
        "    for row in sorted(CANDIDATES, key=lambda row: ctx.preferences.rank(row.library)):",
        "        if attempt(ctx, op, inputs, outputs, refused, row, invoke):",
        "            return",
        "    raise no_invoker(ctx, op, inputs, outputs, refused)",
    ]
    return "\n".join(lines) + "\n", names


#: Source text of ``invoke``, which calls an invoker and then runs the routine that it returned, in
#: the order that the paper gives.
_INVOKE = """\
def invoke(library, describe, ctx, op, operands):
    routine = described(describe(ctx, op, *operands))
    if routine is None:  # the long form: the invoker has done all of this itself
        return
    tensors = [PTensor(tensor) for tensor in routine.tensors]
    for tensor, wanted in zip(tensors, routine.wants):
        if wanted is not None:  # else the library's guideline decides
            tensor.require(wanted)
    if not lib_tagger(library, *sides(tensors), routine.follow):
        routine(*tensors)
"""


def _candidate(priority: int, row: InvokerInfo) -> list[str]:
    when = f"when_{row.library}" if row.when is not None else "None"
    dtypes = {role: tuple(sorted(types)) for role, types in sorted(row.dtypes.items())}
    return [
        f"# {_short_path(row.file)}:{row.line}",
        f"Candidate(library={row.library!r}, priority={priority}, describe=describe_{row.library},",
        f"          dtypes={dtypes!r}, when={when}, python={row.python}),",
    ]


def _short_path(file: str) -> str:
    path = Path(file)
    return f"{path.parent.name}/{path.name}"


@dataclass(frozen=True)
class Candidate:
    """An invoker of an operator, as the generated dispatcher lists it.

    Attributes:
        priority: the invoker's own priority, else that of its library. The candidate with the
            largest priority is asked first, unless the session sets an order.
        describe: the invoker function, which describes the library's call.
        library, dtypes, when, python: as in ``InvokerInfo``.
    """

    library: str
    priority: int
    describe: InvokerFunction
    dtypes: dict[str, tuple[str, ...]]
    when: When | None
    python: bool


def attempt(
    ctx: DispatchContext,
    op: object,
    inputs: Sequence[VTensor],
    outputs: Sequence[VTensor],
    refused: list[Refusal],
    candidate: Candidate,
    invoke: Callable[..., None],
) -> bool:
    """Ask one library to take a call. Return True if it takes the call.

    When a library takes the call, its variant is stored in ``ctx.variant``. If ``ctx.variant``
    already names another library, the candidate's library is not asked, and the result is False.

    Args:
        ctx: the context of the node.
        op, inputs, outputs: the operator instance and the operands of the call.
        refused: the libraries that declined the call so far, with their reasons. If this library
            declines, it is appended.
        candidate: the library and its invoker.
        invoke: the generated function ``invoke``.

    Raises:
        InvokerError: the invoker or its condition failed.
        ContractError: the library declines a call that was decided for it, or its invoker breaks
            the contract of invokers.
    """
    variant = ctx.variant
    if variant is not None and variant.library != candidate.library:
        return False
    info = info_of(op)
    evaluation = current_evaluation()
    posted = [operand for follower in ctx.followers for operand in follower.operands]
    roles = info.roles(len(inputs), len(outputs))
    call = Call(
        ctx.node,
        op,
        info.name,
        candidate.library,
        ctx.device,
        (*inputs, *posted),
        tuple(outputs),
        (*roles[: len(inputs)], *post_roles(len(posted)), *roles[len(inputs) :]),
        evaluation,
        candidate.python,
        variant,
        place=place_of(candidate.describe),
        posted=len(posted),
        followers=ctx.followers,
    )
    try:
        if variant is None or evaluation.confirming:
            _eligible(ctx, call, candidate)
        run_call(
            call,
            lambda: invoke(candidate.library, candidate.describe, ctx, op, (*inputs, *outputs)),
        )
    except Decline as why:
        if variant is not None:
            raise call.misuse(f"declines what was decided: {why}", at=call.place) from None
        refused.append(Refusal(candidate.priority, candidate.library, str(why)))
        return False
    if variant is None and call.variant is not None:
        ctx.variant = replace(call.variant, refused=tuple(refused))
    return True


def post_roles(count: int) -> tuple[str, ...]:
    """Return the roles of operands of fused followers: ``post0``, ``post1``, ...

    Args:
        count: the number of these operands.
    """
    return tuple(f"post{i}" for i in range(count))


def _eligible(ctx: DispatchContext, call: Call, candidate: Candidate) -> None:
    """Check whether a library may take a call, before its invoker is called.

    The session's preferences must allow the library, and it must be usable in this process. The
    invoker must accept the element type of each operand, and its condition ``when`` must hold.

    Raises:
        Decline: one of these fails; the message says which.
        InvokerError: the condition failed.
    """
    reason = (
        ctx.preferences.refusal(call.node, call.op_name, call.library)
        or ready().libraries[call.library].absent
    )
    if reason:
        raise Decline(reason)
    if reason := _other_type(candidate.dtypes, call.roles, call.operands):
        raise Decline(reason)
    if candidate.when is not None:
        answer = _condition(call, candidate.when)
        if isinstance(answer, str) or not answer:
            raise Decline(answer or "the condition of its invoker does not hold")


def _other_type(
    dtypes: Mapping[str, Collection[str]], roles: Sequence[str], operands: Sequence[VTensor]
) -> str:
    """Return why an invoker does not accept the element types of operands; empty if it does.

    Args:
        dtypes: the accepted element types by role, as in ``InvokerInfo``.
        roles, operands: the operands and their roles.
    """
    for role, operand in zip(roles, operands, strict=True):
        allowed = dtypes.get(role, dtypes.get(role.rstrip("0123456789"), dtypes.get("")))
        if allowed is not None and operand.dtype not in allowed:
            return f"dtype {operand.dtype} of {role} is not among {', '.join(allowed)}"
    return ""


def has_kernel(
    node: str,
    op: object,
    inputs: Sequence[VTensor],
    outputs: Sequence[VTensor],
    preferences: Preferences = EVERY,
) -> bool:
    """Return whether an allowed library declares a native kernel for the element types of a call;
    see ``kernels``.
    """
    return any(True for _ in kernels(node, op, inputs, outputs, preferences))


def kernels(
    node: str,
    op: object,
    inputs: Sequence[VTensor],
    outputs: Sequence[VTensor],
    preferences: Preferences = EVERY,
) -> Iterator[str]:
    """Yield the name of each allowed library that declares a native kernel for the element types
    of a call.

    Nothing is compiled: the invoker accepts the types, the library computes in them on this
    processor, and the invoker's condition holds. A condition that raises an error other than
    VTensorError counts as holding: resolution calls it again, and reports the error.

    Args:
        node, op: the node's name and its operator instance.
        inputs, outputs: the operands, without layouts.
        preferences: the libraries that may take the node.
    """
    info, operands = info_of(op), (*inputs, *outputs)
    roles = info.roles(len(inputs), len(outputs))
    for _, row in ready().candidates(info.name, CPU):
        library = ready().libraries[row.library]
        if row.python or library.absent or preferences.refusal(node, info.name, row.library):
            continue
        if _other_type(row.dtypes, roles, operands):
            continue
        if not all(map(library.computes, dict.fromkeys(each.dtype for each in operands))):
            continue
        try:
            answer = row.when is None or row.when(op, *operands)
        except (VTensorError, Decline):
            continue
        except Exception as error:  # of the author's code: resolution asks again, and reports it
            pass_signals(error)
            answer = True
        if answer and not isinstance(answer, str):
            yield row.library


def _condition(call: Call, when: When) -> bool | str:
    """Return the result of an invoker's condition.

    True means that the library may take the call; False or a text, the reason, that it declines.

    Raises:
        InvokerError: the condition raised, or returned None.
    """
    inputs = call.inputs[: len(call.inputs) - call.posted]
    subject = f"the condition ({place_of(when)}) of the {call.library} invoker ({call.place})"
    try:
        answer = when(call.op, *inputs, *call.outputs)
    except (Decline, MemoryError):
        raise
    except Exception as error:  # any error of the author's code, such as a missing dim
        pass_signals(error)
        raise InvokerError(call.failure(raised(error, place_of(when)), subject)) from error
    if answer is None:
        raise InvokerError(
            call.failure(
                "answers None: it must return True, or False or a reason for declining", subject
            )
        )
    return answer


def run_call(call: Call, run: Callable[[], None]) -> None:
    """Run an invoker with ``call`` as the current call, and check that it called ``lib_tagger``.

    In mode RECORD, a ``python=True`` invoker is not run: ``Evaluation.callback`` gets ``run``.

    Args:
        call: the call.
        run: calls the invoker.

    Raises:
        InvokerError: the invoker failed in Python, or in calling its library; the message names
            the node and its operands.
        ContractError: the invoker returned without calling ``lib_tagger``.
    """
    if call.python and call.evaluation.mode is Mode.RECORD:
        call.evaluation.callback(call, run)
        return
    try:
        with entered(call):
            run()
    except DimError as error:
        if "\n" in str(error):  # the message has the node and its operands already
            raise
        raise DimError(call.failure(raised(error, call.place, kind=False))) from error
    except (VTensorError, Decline, MemoryError):
        raise
    except Exception as error:  # any error of the author's code or of the library
        pass_signals(error)
        raise InvokerError(call.failure(raised(error, call.place))) from error
    finally:
        call.finish()
    if not call.tagged:
        raise call.misuse("returned without calling lib_tagger", at=call.place)


def no_invoker(
    ctx: DispatchContext,
    op: object,
    inputs: Sequence[VTensor],
    outputs: Sequence[VTensor],
    refused: Sequence[Refusal],
) -> NoInvokerError:
    """Return the error for a call that no library takes.

    Args:
        ctx: the context of the node.
        op, inputs, outputs: the operator instance and the operands of the call.
        refused: the libraries that were asked, with their reasons, for the message.
    """
    info = info_of(op)
    operands = (*inputs, *outputs)
    rows = {
        role: (t.dtype, t.dims)
        for role, t in zip(info.roles(len(inputs), len(outputs)), operands, strict=True)
    }
    if ctx.variant is not None:
        headline = (
            f"{info.name} {ctx.node!r}: was resolved to {ctx.variant.library}, "
            f"which has no invoker for it any more on {ctx.device}"
        )
        return NoInvokerError(describe(headline, rows, remedy="make a new session"))
    headline, remedy = _fault(ctx, info, refused)
    tried = [(r.priority, r.library, r.reason) for r in refused]
    how = "by priority" if ctx.preferences.order is None else "in the session's order"
    text = describe(f"{label_of(op)} {ctx.node!r}: {headline}", rows, tried, remedy, how)
    return NoInvokerError(text)


def _fault(ctx: DispatchContext, info: OperatorInfo, refused: Sequence[Refusal]) -> tuple[str, str]:
    """Return (headline, remedy) for the error about a call that no library takes: what is wrong,
    and what the user can do.
    """
    pinned = ctx.preferences.pinned(ctx.node, info.name)
    if pinned is not None:
        return (
            f"pinned to {pinned}, which does not take this call on {ctx.device}",
            "pin it to another library or to none, or cast the operands",
        )
    headline = f"no library can run this call on {ctx.device}"
    if not refused:
        return headline, f"write an @invoker({info.name!r}, library=..., device={ctx.device!r})"
    listing = "" if ctx.preferences.order is None else "list more libraries, "
    return headline, f"{listing}cast the operands, or register a library that takes them"
