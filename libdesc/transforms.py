"""Transforms, changes of layout: which library runs one, and how.

A Transform runs on the library of the node that reads the value, if this library can convert
between the two layouts. Otherwise it runs on the library of the node that makes the value, or on
the first library that can, by priority or in the session's order. The last choice is NumPy's
definition, which is called back in each run.
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
    """The layouts of a Transform, before and after. In a call it takes the place of the
    operator.
    """

    source: Layout
    target: Layout

    @property
    def permutation(self) -> tuple[int, ...]:
        """For each dim of the target, slowest first, its index among the dims of the source."""
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
    """Run a Transform on one library, in the way of ``evaluation``: by the function that is
    generated for the library.

    Args:
        node: the Transform's name.
        library: the library's name.
        x, y: source and target.
        change: the layouts of x and y.
        evaluation: a partial evaluation, or one that records.
        decided: True if the library has been chosen before, False while it is being chosen.

    Raises:
        Decline: the library cannot convert between these layouts. If ``decided``, it is asked only
            by an ``evaluation`` that is partial or confirming.
    """
    registered = ready().libraries[library]
    layouts = (change.source, change.target)
    requirements = tuple(Requirement((layout,), __file__, 0) for layout in layouts)
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
        registered.description.python,
        variant,
        converts=True,
    )
    body = registered.code["transform"]
    run_call(call, lambda: body(x, y, change.source, change.target, change.permutation))


def choose_library(
    x: VTensor,
    change: LayoutChange,
    preferred: Iterable[str],
    evaluation: Evaluation,
    preferences: Preferences = EVERY,
) -> str:
    """Return the name of the library that runs a Transform.

    Args:
        x: the tensor that is transformed.
        change: its layout before and after.
        preferred: names of the libraries to ask first: that of the node that reads the value, then
            that of the node that makes it.
        evaluation: a partial evaluation.
        preferences: which libraries may be used, and their order; pins do not apply to Transforms.

    Raises:
        NoInvokerError: no library takes the Transform, not even NumPy's definition.
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
