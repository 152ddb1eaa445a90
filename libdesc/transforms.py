"""Transforms: who runs a change of layout, and how.

A Transform runs on the consumer's library if that can describe both layouts, else on the
producer's, else on the first that can, by priority or in the session's order, else by NumPy's
definition: a call-back, also where NumPy itself consumes.
"""

from __future__ import annotations

from collections.abc import Iterable

from libdesc.dispatcher import run_call
from libdesc.preferences import DEFINITION, EVERY, Preferences
from libdesc.registry import ready
from ptensor.evaluation import Call, Decline, Evaluation, Requirement, Variant, forms_on
from ptensor.layout import Layout
from vtensor.errors import LayoutError, NoInvokerError
from vtensor.language.records import dataclass
from vtensor.language.tensor import VTensor


@dataclass(frozen=True)
class LayoutChange:
    """A Transform as a call sees it, in the place of an operator instance."""

    source: Layout
    target: Layout

    @property
    def permutation(self) -> tuple[int, ...]:
        """For each dim of the target, slowest first, its place in the source."""
        return tuple(self.source.dims.index(dim) for dim in self.target.dims)


def run_transform(
    node: str,
    library: str,
    x: VTensor,
    y: VTensor,
    change: LayoutChange,
    evaluation: Evaluation,
    decided: bool = True,
) -> None:
    """Run a Transform's generated body on one library, in whatever way the evaluation says.

    Raises:
        Decline: only when nothing is decided yet: the library does not know one of the layouts.
    """
    found = ready().libraries[library]
    requirements = tuple(Requirement((one,), __file__, 0) for one in (change.source, change.target))
    layouts = (change.source, change.target)
    variant = Variant(library, forms_on(x.device, layouts), requirements) if decided else None
    roles = ("x", "y")
    call = Call(
        node,
        change,
        "Transform",
        library,
        x.device,
        (x,),
        (y,),
        roles,
        evaluation,
        found.description.python,
        variant,
        converts=True,
    )
    body = found.code["transform"]
    run_call(call, lambda: body(x, y, change.source, change.target, change.permutation))


def choose_library(
    x: VTensor,
    change: LayoutChange,
    preferred: Iterable[str],
    evaluation: Evaluation,
    preferences: Preferences = EVERY,
) -> str:
    """The library that runs a Transform.

    Args:
        x: what is transformed.
        change: from which layout to which.
        preferred: libraries to ask first: the consumer's, the producer's.
        evaluation: a partial one.
        preferences: which libraries may be used, and their order; pins say nothing of Transforms.

    Raises:
        NoInvokerError: not even the definition takes it.
    """
    known = ready().libraries
    others = sorted(known, key=lambda name: (preferences.rank(name), -known[name].priority, name))
    names = [name for name in [*preferred, *others] if name != DEFINITION]
    reasons = []
    for name in dict.fromkeys([*names, DEFINITION]):
        library = known.get(name)
        if library is None or not library.transforms or library.absent:
            continue
        if x.device not in library.devices or not preferences.allows(name):
            continue
        y = VTensor(x.dtype, x.dims)
        try:
            run_transform("", name, x, y, change, evaluation, decided=False)
        except (Decline, LayoutError) as why:
            reasons.append(f"{name}: {why}")
        else:
            return name
    tried = "; ".join(reasons) or "no library has a transformer"
    raise NoInvokerError(
        f"no library transforms {x.summary()} from {change.source} to {change.target}: {tried}"
    )
