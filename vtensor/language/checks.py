"""ParametersAndDimensionCheck: Python code that checks a call, generated from the declaration.

The code has a file name of its own, for which ``linecache`` holds its lines: tracebacks and
debuggers can show them.

Source: the paper, section 4.4.
"""

from __future__ import annotations

import dataclasses
import linecache
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from vtensor.errors import DimError, ParameterError, describe
from vtensor.language.dims import DimSpec, product_source
from vtensor.language.records import dataclass
from vtensor.language.symbolic.sizes import OpenSize

if TYPE_CHECKING:
    from vtensor.language.tensor import VTensor

Check = Callable[[str, object, Sequence["VTensor"], Sequence["VTensor"]], None]


@dataclass(frozen=True, eq=False)
class CheckSource:
    """The parts of an operator's declaration from which the code that checks a call is generated.

    Attributes:
        name: the operator's name.
        cls: the operator's class, whose fields are the parameters.
        inputs, outputs: the roles of the operands, names such as ``x``, ``w`` and ``y``.
        many: the roles that stand for any number of operands.
        dims: by role, the dim names that are declared for the operand.
        equal: pairs of products of sizes and parameters that must be equal, as text:
            ``("x.C", "w.I * group")``.
        holds: pairs of a condition and a message. The condition is called with the instance and the
            inputs; if it returns False, an error is raised with the message.
    """

    name: str
    cls: type
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    many: frozenset[str]
    dims: Mapping[str, DimSpec]
    equal: tuple[tuple[str, str], ...]
    holds: tuple[tuple[Callable[..., bool], str], ...] = ()


def parameter_error(name: str, field: str, value: object, rule: str) -> ParameterError:
    """Return the error that says which rule a parameter of an operator breaks.

    Args:
        name: the operator's name.
        field: the parameter's name.
        value: the parameter's value.
        rule: what the parameter must be, such as ``"at least 1"``.
    """
    return ParameterError(f"{name}({field}={value!r}): {field} must be {rule}")


VOWELS = "aeiou"


def _plural(phrase: str) -> str:
    for singular, plural in (("a tuple", "tuples"), ("row", "rows")):
        if phrase.startswith(singular):
            return plural + phrase.removeprefix(singular)
    return f"{phrase}s"


def _type_rule(hint: Any) -> tuple[str, str]:
    """Return (expression, words) for the test that the variable ``value`` has the type ``hint``.

    Args:
        hint: the type, an annotation of an operator's parameter.

    Returns:
        A Python expression that is true if the type is right, and the type in words for messages,
        such as ``"a tuple of 2 integers"``.
    """
    if typing.get_origin(hint) is tuple:
        args = typing.get_args(hint)
        if args[-1] is not Ellipsis and len(set(args)) > 1:
            rules = [_type_rule(arg) for arg in args]
            tests = [f"(lambda value: {t})(value[{i}])" for i, (t, _) in enumerate(rules)]
            row = ["isinstance(value, tuple)", f"len(value) == {len(args)}", *tests]
            return " and ".join(row), f"row ({', '.join(word for _, word in rules)})"
        test, word = _type_rule(args[0])
        words = _plural(word)
        many = f"isinstance(value, tuple) and all({test} for value in value)"
        if args[-1] is Ellipsis:
            return many, f"a tuple of {words}"
        return f"{many} and len(value) == {len(args)}", f"a tuple of {len(args)} {words}"
    if hint is int:
        return "isinstance(value, (int, OpenSize)) and not isinstance(value, bool)", "integer"
    if hint is float:
        return "isinstance(value, (int, float, OpenSize)) and not isinstance(value, bool)", "number"
    if hint in (str, bool):
        return f"isinstance(value, {hint.__name__})", {str: "string", bool: "truth value"}[hint]
    if isinstance(hint, type):
        return f"isinstance(value, {hint.__name__})", hint.__name__
    return "True", "value"


#: Returns the types of a class's fields by name. Cached, since Python compiles each annotation.
_hints = cache(typing.get_type_hints)


@cache
def parameter_lines(name: str, cls: type) -> Sequence[str]:
    """Return lines of Python that check the parameters of the instance in the variable ``op``.

    Args:
        name: the operator's name, for errors.
        cls: the operator's class.
    """
    hints = _hints(cls)
    lines: list[str] = []
    for field in dataclasses.fields(cls):
        test, word = _type_rule(hints[field.name])
        rules = [(test, word if word.startswith("a ") else f"a{'n' * (word[0] in VOWELS)} {word}")]
        each = "value" if word.startswith("a tuple") else "(value,)"
        if (low := field.metadata.get("minimum")) is not None:
            rules.append((f"all(v >= {low!r} for v in {each})", f"at least {low!r}"))
        if (high := field.metadata.get("maximum")) is not None:
            rules.append((f"all(v <= {high!r} for v in {each})", f"at most {high!r}"))
        if (choices := field.metadata.get("choices")) is not None:
            rules.append((f"value in {tuple(choices)!r}", f"one of {tuple(choices)!r}"))
        lines.append(f"value = op.{field.name}")
        for test, rule in rules:
            if test != "True":
                lines.append(f"if not ({test}):")
                lines.append(
                    f"    raise parameter_error({name!r}, {field.name!r}, value, {rule!r})"
                )
    return lines


def _unpacked(roles: Sequence[str], many: frozenset[str]) -> str:
    return ", ".join(f"*{role}" if role in many else role for role in roles)


def check_source(source: CheckSource) -> str:
    """Return an operator's check as Python code: ``def check_NAME(node, op, inputs, outputs)``."""
    name = source.name
    lines = [
        f"def check_{name}(node, op, inputs, outputs):",
        f'    """Parameters and dimensions of {name}."""',
        *(f"    {line}" for line in parameter_lines(name, source.cls)),
    ]
    lines.append(f"    [{_unpacked(source.inputs, source.many)}] = inputs")
    lines.append(f"    [{_unpacked(source.outputs, source.many)}] = outputs")
    rows = ", ".join(
        f"**{{f'{role}{{i}}': t for i, t in enumerate({role})}}"
        if role in source.many
        else f"{role!r}: {role}"
        for role in sorted((*source.inputs, *source.outputs), key=source.many.__contains__)
    )
    lines.append(f"    operands = {{{rows}}}")
    for role in (*source.inputs, *source.outputs):
        spec = source.dims[role]
        named = (f"{name}?" if name in spec.optional else name for name in spec.names)
        row = " ".join([*named, *("*" * spec.open)])
        if spec.condition(role) == "True":
            continue
        head, body = "    ", role
        if role in source.many:
            lines.append(f"    for {role}_i in {role}:")
            head, body = "        ", f"{role}_i"
        lines.append(f"{head}if not ({spec.condition(body)}):")
        lines.append(
            f"{head}    raise dim_error(f'{name} {{node!r}}', operands, "
            f"{f'the dims of {role} must be {row}'!r})"
        )
    for left, right in source.equal:
        rule = f"{left} = {{left}} must equal {right} = {{right}}"
        lines.append(f"    left, right = {product_source(left)}, {product_source(right)}")
        lines.append("    if left != right:")
        lines.append(f"        raise dim_error(f'{name} {{node!r}}', operands, f'{rule}')")
    return "\n".join(lines) + "\n"


def compile_text(text: str, file_name: str, names: Mapping[str, object]) -> dict[str, Any]:
    """Run generated Python code and return its global variables by name.

    Args:
        text: the code; tracebacks can show its lines.
        file_name: the name of the code in tracebacks; no such file exists.
        names: the values of the global variables that the code reads, by name.
    """
    linecache.cache[file_name] = (len(text), None, text.splitlines(keepends=True), file_name)
    namespace: dict[str, Any] = dict(names)
    exec(compile(text, file_name, "exec"), namespace)
    return namespace


def parameter_names(cls: type) -> dict[str, object]:
    """Return the global variables that the code of ``parameter_lines`` reads: values by name."""
    hints = _hints(cls).values()
    types = {hint.__name__: hint for hint in hints if isinstance(hint, type)}
    return {"OpenSize": OpenSize, "parameter_error": parameter_error, **types}


def check_names(source: CheckSource) -> dict[str, object]:
    """Return the global variables that the code of ``check_source`` reads: values by name."""
    return {"dim_error": dim_error, **parameter_names(source.cls)}


@cache
def compile_check(source: CheckSource) -> Check:
    """Compile the code of ``check_source`` and return ``check(node, op, inputs, outputs)``.

    The returned function raises a ``ParameterError`` if a parameter of ``op`` breaks a rule. It
    raises a ``DimError`` if the dims or sizes of the operands break one.
    """
    text = check_source(source)
    namespace = compile_text(text, f"<generated check of {source.name}>", check_names(source))
    check: Check = namespace[f"check_{source.name}"]
    return check


@cache
def input_check(source: CheckSource) -> Callable[[object, Sequence[VTensor]], None] | None:
    """Return the function ``check(op, inputs)`` that must be called before ``compute``.

    The returned function raises a ``DimError`` if the call breaks a rule on parameters and inputs
    together, declared by ``dims_of`` or ``holds``. None if the operator declares neither.
    """
    named = [
        (field.name, field.metadata["dims_of"])
        for field in dataclasses.fields(source.cls)
        if field.metadata.get("dims_of")
    ]
    if not (named or source.holds):
        return None

    def check(op: object, inputs: Sequence[VTensor]) -> None:
        for parameter, role in named:
            value = getattr(op, parameter)
            names = (value,) if isinstance(value, str) else value
            dims = inputs[source.inputs.index(role)].dims
            if len(set(names)) < len(names) or not dims.keys() >= set(names):
                rule = "a dim" if isinstance(value, str) else "dims"
                each = "" if isinstance(value, str) else ", each once"
                raise DimError(f"{parameter} {' '.join(names)} must be {rule} of {role}{each}")
        for condition, rule in source.holds:
            if not condition(op, *inputs):
                roles = dict(zip(source.inputs, inputs, strict=False))
                raise DimError(rule.format(op=op, **roles))

    return check


def parameter_check(name: str, cls: type) -> Callable[[object], None]:
    """Return a function that raises a ``ParameterError`` if a parameter of an instance is wrong.

    Args:
        name: the operator's name.
        cls: the operator's class.
    """
    body = parameter_lines(name, cls) or ["pass"]
    text = f"def check_parameters_{name}(op):\n" + "\n".join(f"    {line}" for line in body) + "\n"
    names = parameter_names(cls)
    namespace = compile_text(text, f"<generated parameter check of {name}>", names)
    check: Callable[[object], None] = namespace[f"check_parameters_{name}"]
    return check


def dim_error(label: str, operands: Mapping[str, VTensor], rule: str) -> DimError:
    """Return the error of a failed check; its message has a line for each operand.

    Args:
        label: the names of the operator and the node, with which the message begins.
        operands: the operands by role.
        rule: the rule that does not hold, in words.
    """
    rows = {role: (t.dtype, t.dims) for role, t in operands.items()}
    return DimError(describe(f"{label}: {rule}", rows))
