"""What the operators share: how they check what they are given, and who runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from eval.layout_aware.context import Context, Unsupported
from eval.layout_aware.tensor import Sizes, Tensor
from vtensor.errors import DimError, NoInvokerError

#: The libraries, by priority.
LIBRARIES = ("onednn", "eigen", "numpy")


class Operator:
    """An operator: parameters, checks and sizes, and a method for each library that has it."""

    def run(self, ctx: Context, libraries: Iterable[str], *inputs: Tensor) -> Tensor:
        """Record the operator on the first library that takes it.

        Raises:
            NoInvokerError: none does; says why.
            DimError: the inputs do not fit.
        """
        reasons = []
        for library in libraries:
            before, ctx.library = len(ctx.steps), library
            compute: Callable[..., Tensor] = getattr(self, library)
            try:
                return compute(ctx, *map(ctx.received, inputs))
            except Unsupported as why:
                del ctx.steps[before:]
                reasons.append(f"{library}: {why}")
        raise NoInvokerError(f"{self}: {'; '.join(reasons)}")


def check(holds: bool, text: str, *sizes: Sizes) -> None:
    """See that a condition on sizes holds.

    Raises:
        DimError: it does not; says the sizes.
    """
    if not holds:
        raise DimError(f"{text}; the sizes are {' and '.join(map(str, sizes))}")
