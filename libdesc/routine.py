"""Routines: library calls that are described before they are made.

An invoker makes a routine from its VTensors and parameters, and returns it. Nothing is called yet.
The library's guideline reads from the routine which call it describes, so that the guideline need
not know any operator. Later the same routine makes the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ptensor.evaluation import Call, Variant, caller, current_call
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.errors import ContractError
from vtensor.language.operators import Follower
from vtensor.language.tensor import VTensor

#: A requirement on an operand: a layout, several in order of preference, or ANY; None leaves the
#: choice to the library's guideline.
Wanted = Layout | str | Sequence[Layout | str] | None


def reference_kernel(kernel: str) -> bool:
    """Return whether the name of a kernel says that it is, or contains, a library's reference code.

    >>> [reference_kernel(name) for name in ("ref:any", "conv:any+ref:any", "brgconv:avx2")]
    [True, True, False]
    """
    return any(part.startswith("ref") for part in kernel.split("+"))


class Routine:
    """The description of a library call: its operands, the layouts that it needs, and the function
    that makes it.

    Args:
        tensors: every operand of the call, or a view of it, each once.
        wants: the layout that each operand must have. If it is shorter than ``tensors``, the
            library's guideline decides for the others.
        follow: the fused operators that the call computes as well: all of ``ctx.followers``, or
            none.
        run: makes the call on the operands, in the order of ``tensors``; a library's routines may
            override ``__call__`` instead.

    Attributes:
        heavy: True if arithmetic, not memory, takes the time, as in a product of matrices.
        reference: True if the library has only slow reference code for the layouts confirmed last.
        each: True if the operands whose layout is ANY may have different layouts, provided that
            ``confirm`` accepts them. If False, they all have the same layout.
        inexact: True if the call is approximate, as with Winograd's algorithm. It is then chosen
            only if the session's tolerance allows the error.
    """

    heavy: bool = False
    each: bool = False
    reference: bool = False
    inexact: bool = False

    def __init__(
        self,
        tensors: Sequence[VTensor],
        wants: Sequence[Wanted] = (),
        follow: Sequence[Follower] = (),
        run: Callable[..., None] | None = None,
    ) -> None:
        self.tensors = tuple(tensors)
        self.wants: tuple[Wanted, ...] = (*wants, *[None] * (len(self.tensors) - len(wants)))
        self.follow = tuple(follow)
        self._run = run

    def preferred(self, call: Call) -> Mapping[int, Layout | Sequence[Layout]]:  # noqa: ARG002
        """Return the layouts that the library prefers, by index of the call's operands.

        There is one for an operand, or several in order of preference. An operand that is missing
        may have any layout.
        """
        return {}

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:  # noqa: ARG002
        """Return None if the library takes the call in these layouts, else the reason why not.

        Args:
            call: the call.
            row: a layout per operand of the call.
        """
        return None

    def variants(self, call: Call) -> Iterable[Variant]:  # noqa: ARG002
        """Return the variants that are worth measuring; empty if there is nothing to choose."""
        return ()

    def __call__(self, *tensors: PTensor) -> None:
        """Make the call: emit its steps.

        Args:
            tensors: the operands, in the order of ``self.tensors``.
        """
        if self._run is None:
            raise NotImplementedError(f"{type(self).__name__} has neither run nor __call__")
        self._run(*tensors)


class InOrder(Routine):
    """Several routines of one library as one routine: they run one after another.

    If several of them use a tensor, its layout is the one that the first routine with a requirement
    for it requires. Each of the routines then has to confirm all layouts.

    Args:
        routines: the routines, in the order in which they run.
    """

    def __init__(self, routines: Sequence[Routine]) -> None:
        self.routines = tuple(routines)
        self.heavy = any(routine.heavy for routine in routines)
        self.inexact = any(routine.inexact for routine in routines)
        wants: dict[int, Wanted] = {}
        tensors: dict[int, VTensor] = {}
        for routine in routines:
            for tensor, wanted in zip(routine.tensors, routine.wants, strict=True):
                tensors.setdefault(id(tensor), tensor)
                if wants.get(id(tensor)) is None:
                    wants[id(tensor)] = wanted
        follow = dict.fromkeys(follower for routine in routines for follower in routine.follow)
        super().__init__([*tensors.values()], [*wants.values()], [*follow])

    def preferred(self, call: Call) -> Mapping[int, Layout | Sequence[Layout]]:
        """Return the layouts that the library prefers, by operand index.

        For each operand they are those of the first routine that has a preference.
        """
        answers: dict[int, Layout | Sequence[Layout]] = {}
        for routine in reversed(self.routines):
            answers |= routine.preferred(call)
        return answers

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """Return None if all routines take these layouts, else the first reason why one does not.

        Args:
            call: the call.
            row: a layout per operand of the call.
        """
        refused = next(
            filter(None, (routine.confirm(call, row) for routine in self.routines)), None
        )
        self.reference = any(routine.reference for routine in self.routines)
        return refused

    def __call__(self, *tensors: PTensor) -> None:
        """Make the calls of all routines, in order."""
        by_id = {id(tensor): ptensor for tensor, ptensor in zip(self.tensors, tensors, strict=True)}
        for routine in self.routines:
            routine(*(by_id[id(tensor)] for tensor in routine.tensors))


def described(answer: object) -> Routine | None:
    """Take what an invoker returned, store it in the current call as its routine, and return the
    routine.

    Args:
        answer: what the invoker returned. It may be a routine, or a list or tuple of several, which
            become one routine that runs them in order. It is None if the invoker has made the call
            itself; then None is returned.

    Raises:
        ContractError: there is no current call, the result is something else, or the invoker
            returned a routine although it had called ``lib_tagger``.
        Decline: the routine does not compute the fused operators.
    """
    call = current_call()
    if call is None:
        raise ContractError(f"a routine outside a call ({caller()})")
    if answer is None:
        return None
    returned = answer if isinstance(answer, (list, tuple)) else [answer]
    routines = [item for item in returned if isinstance(item, Routine)]
    if call.tagged:
        raise call.misuse(f"returned {answer!r} after lib_tagger", at=call.place)
    if not routines or len(routines) < len(returned):
        text = f"returned {answer!r}, which is no Routine: return what it would call"
        raise call.misuse(text, at=call.place)
    routine = routines[0] if len(routines) == 1 else InOrder(routines)
    call.check_followed(routine.follow)
    call.routine = routine
    return routine


def sides(tensors: Sequence[PTensor]) -> tuple[list[PTensor], list[PTensor]]:
    """Split the PTensors of one call into inputs and outputs."""
    inputs = [tensor for tensor in tensors if tensor.index < len(tensor.call.inputs)]
    return inputs, [tensor for tensor in tensors if tensor.index >= len(tensor.call.inputs)]
