"""A routine: one library call, described before it is made.

An invoker returns the routine that it would call, made from its VTensors and parameters. Making one
has no effect. The library's guideline then knows what is about to be called without knowing any
operator, and the same description makes the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ptensor.evaluation import Call, Variant, caller, current_call
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.errors import ContractError
from vtensor.language.operators import Follower
from vtensor.language.tensor import VTensor

#: What a routine asks of an operand: a layout, several in order of preference, ANY; None leaves it
#: to the library's guideline.
Wanted = Layout | str | Sequence[Layout | str] | None


def reference_kernel(kernel: str) -> bool:
    """True for the name of a kernel that is, or contains, a library's reference code.

    >>> [reference_kernel(name) for name in ("ref:any", "conv:any+ref:any", "brgconv:avx2")]
    [True, True, False]
    """
    return any(part.startswith("ref") for part in kernel.split("+"))


class Routine:
    """A library call: its operands, the layouts that it needs, and the function that makes it.

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
        each: True if operands for which ANY is asked may lie in different layouts, as far as
            ``confirm`` takes them: the call reads each where it is.
        inexact: True if results differ by more than the order of sums, as of arithmetic in another
            domain: taken only where the session's tolerance allows it.
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
        """The layouts that the library would like, by operand index."""
        return {}

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:  # noqa: ARG002
        """None if the library takes the call with these layouts, else the reason why not."""
        return None

    def variants(self, call: Call) -> Iterable[Variant]:  # noqa: ARG002
        """The variants that are worth measuring; empty where there is nothing to choose."""
        return ()

    def __call__(self, *tensors: PTensor) -> None:
        """Make the call: emit its steps."""
        if self._run is None:
            raise NotImplementedError(f"{type(self).__name__} has neither run nor __call__")
        self._run(*tensors)


class InOrder(Routine):
    """Several routines of one library, one after another.

    An operand of several is as the first of them asks that asks for anything; each confirms the row
    that comes out.
    """

    def __init__(self, routines: Sequence[Routine]) -> None:
        self.routines = tuple(routines)
        self.heavy = any(one.heavy for one in routines)
        self.inexact = any(one.inexact for one in routines)
        wants: dict[int, Wanted] = {}
        tensors: dict[int, VTensor] = {}
        for one in routines:
            for tensor, wanted in zip(one.tensors, one.wants, strict=True):
                tensors.setdefault(id(tensor), tensor)
                if wants.get(id(tensor)) is None:
                    wants[id(tensor)] = wanted
        follow = dict.fromkeys(follower for one in routines for follower in one.follow)
        super().__init__([*tensors.values()], [*wants.values()], [*follow])

    def preferred(self, call: Call) -> Mapping[int, Layout | Sequence[Layout]]:
        """The preferences of the first routine that has any."""
        answers: dict[int, Layout | Sequence[Layout]] = {}
        for one in reversed(self.routines):
            answers |= one.preferred(call)
        return answers

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """The first reason why one of them does not take the layouts, or None."""
        refused = next(filter(None, (one.confirm(call, row) for one in self.routines)), None)
        self.reference = any(one.reference for one in self.routines)
        return refused

    def __call__(self, *tensors: PTensor) -> None:
        """Make the calls."""
        made = {id(tensor): one for tensor, one in zip(self.tensors, tensors, strict=True)}
        for one in self.routines:
            one(*(made[id(tensor)] for tensor in one.tensors))


def described(answer: object) -> Routine | None:
    """Register the routine that an invoker returned with the call that is under way.

    Args:
        answer: what the invoker returned: a routine, several in order, or None of the long form.

    Raises:
        ContractError: it is something else.
    """
    call = current_call()
    if call is None:
        raise ContractError(f"a routine outside a call ({caller()})")
    if answer is None:
        return None
    given = answer if isinstance(answer, (list, tuple)) else [answer]
    routines = [one for one in given if isinstance(one, Routine)]
    if call.tagged:
        raise call.misuse(f"returned {answer!r} after lib_tagger", at=call.place)
    if not routines or len(routines) < len(given):
        text = f"returned {answer!r}, which is no Routine: return what it would call"
        raise call.misuse(text, at=call.place)
    routine = routines[0] if len(routines) == 1 else InOrder(routines)
    call.check_followed(routine.follow)
    call.routine = routine
    return routine


def sides(tensors: Sequence[PTensor]) -> tuple[list[PTensor], list[PTensor]]:
    """The inputs among the PTensors of one call, and its outputs."""
    inputs = [one for one in tensors if one.index < len(one.call.inputs)]
    return inputs, [one for one in tensors if one.index >= len(one.call.inputs)]
