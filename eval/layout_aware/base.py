"""The base of layout-aware operators: the choice of a library, and the check of sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from eval.layout_aware.context import Context, Unsupported
from eval.layout_aware.tensor import Sizes, Tensor
from vtensor.errors import DimError, NoInvokerError

#: The libraries, by priority.
LIBRARIES = ("onednn", "eigen", "numpy")


class Operator:
    """An operator: parameters, checks and sizes, and a method for each library that has it.

    A method has its library's name, records the library's calls, and returns the output.
    """

    def run(self, ctx: Context, libraries: Iterable[str], *inputs: Tensor) -> Tensor:
        """Record the operator on the first library that supports it, and return the output.

        Args:
            ctx: the context that records.
            libraries: the names of the libraries, in order.
            inputs: the inputs, in any layouts.

        Raises:
            NoInvokerError: no library supports it; the message has each library's reason.
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
    """Raise an error unless a condition on sizes holds.

    Args:
        holds: the condition.
        text: the error's message.
        sizes: sizes that are added to the message.

    Raises:
        DimError: the condition does not hold.
    """
    if not holds:
        raise DimError(f"{text}; the sizes are {' and '.join(map(str, sizes))}")
