"""Checks of the arguments of ``@operator``: a typo is found at registration, not in a call."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping, Sequence

from vtensor.errors import DimError, GraphError, did_you_mean
from vtensor.language.dims import DimSpec, product_source


def parsed_dims(name: object, dims: object, parameters: Sequence[str]) -> dict[str, DimSpec]:
    """Return the dim names that are declared for each operand, by the operand's role.

    The ``*`` of a role of many operands (``"*y"``) is left out.

    Args:
        name: the operator's name.
        dims: by role, a row of dim names such as ``"N C"``; ``"*y"`` is a role of many operands.
        parameters: names of the parameters of ``compute`` after ``self``; the first must be the
            context.

    Raises:
        GraphError: the name is no identifier, ``dims`` is no mapping of texts, or the roles and
            ``compute`` disagree.
        DimError: a row has a name that is no identifier, or a name twice.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise GraphError(f"operator {name!r}: its name must be an identifier, such as 'Scale'")
    if not isinstance(dims, Mapping) or not all(isinstance(row, str) for row in dims.values()):
        raise GraphError(
            f"operator {name}: dims={dims!r} must be a row of names by role: {{'x': 'N C', ...}}"
        )
    inputs = set(parameters[1:])
    if not inputs <= set(dims):
        hints = "".join(did_you_mean(role, set(dims) - inputs) for role in inputs - set(dims))
        raise GraphError(f"operator {name}: dims say nothing of {inputs - set(dims)}{hints}")
    if not parameters or parameters[0] in dims:
        got = ", ".join(["self", *parameters])
        raise GraphError(f"operator {name}: compute({got}) must be compute(self, ctx, ...)")
    if not set(dims) - inputs:
        raise GraphError(
            f"operator {name}: dims name no output, only {', '.join(dims)}, which compute takes"
        )
    specs = {}
    for role, row in dims.items():
        try:
            specs[role.removeprefix("*")] = DimSpec.parse(row)
        except DimError as error:
            raise DimError(f"operator {name}: dims of {role}: {error}") from None
    return specs


def check_equal(
    name: str, cls: type, equal: Sequence[tuple[str, str]], specs: Mapping[str, DimSpec]
) -> None:
    """Check that both sides of each equality name roles, dims and parameters that exist.

    Args:
        name: the operator's name.
        cls: the operator's class, whose fields are the parameters.
        equal: the equalities: pairs of products of sizes and parameters, ``("x.C", "w.I *
            group")``.
        specs: by role, the dim names that are declared for the operand.

    Raises:
        GraphError: a pair is no pair of products, or names something that does not exist.
    """
    for pair in equal:
        if not (
            isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(p, str) for p in pair)
        ):
            raise GraphError(
                f"operator {name}: equal={equal!r} must be pairs of products: [('x.C', 'w.I')]"
            )
        for side in pair:
            try:
                product_source(side)
            except DimError as error:
                raise GraphError(f"operator {name}: equal: {error}") from None
            for factor in side.split("*"):
                fault = _fault(cls, factor.strip(), specs)
                if fault:
                    raise GraphError(f"operator {name}: equal: {side!r}: {fault}")


def _fault(cls: type, factor: str, specs: Mapping[str, DimSpec]) -> str:
    """Return why a factor of an equality is wrong: its role, dim or parameter does not exist.

    Args:
        cls: the operator's class, whose fields are the parameters.
        factor: ``"x.C"``, a parameter or an integer.
        specs: by role, the dim names that are declared for the operand.

    Returns:
        The reason; empty if the factor is right.
    """
    if match := re.fullmatch(r"([^\W\d]\w*)\.(\w+)", factor):
        role, dim = match.groups()
        if role not in specs:
            return f"there is no role {role!r}; roles are {', '.join(specs)}"
        if not specs[role].open and dim not in specs[role].names:
            return f"{role} has no dim {dim!r}; its dims are {' '.join(specs[role].names)}"
        return ""
    fields = [field.name for field in dataclasses.fields(cls)]
    if factor.isdigit() or factor in fields or hasattr(cls, factor):
        return ""
    return f"there is no parameter {factor!r}; parameters are {', '.join(fields) or 'none'}"


def check_annotations(name: str, cls: type) -> None:
    """Check that the annotations of the parameters can be evaluated at registration.

    Raises:
        GraphError: an annotation cannot be evaluated.
    """
    try:
        typing.get_type_hints(cls)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise GraphError(
            f"operator {name}: the type of a parameter is not known: {reason}"
        ) from None
