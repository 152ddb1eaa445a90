"""Rewrite rules: what a pattern of operators may be replaced by, as data.

A rule is a text, an equation between two expressions of registered operators::

    Mul(x, Sigmoid(x))  =  Swish(x)

Names that begin with a small letter are holes: the same name is the same value. A number is a
constant that holds that number everywhere. ``scalar(s)`` is a constant of one number, and
``constant(c)`` any constant. ``a | b`` is one or the other. Parameters are given by name: a name is
bound to what the operator has there, ``_`` is anything, and what is not given has its default.
Lines ``name = expression`` before the pattern name parts of it; a name is one value.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, cast

from vtensor.errors import GraphError
from vtensor.language.records import dataclass

if TYPE_CHECKING:
    from vtensor.language.tensor import VTensor

#: What a hole may ask of the value that it takes.
KINDS = ("", "scalar", "constant")


@dataclass(frozen=True)
class Hole:
    """A value that the pattern begins at; of a kind, one of ``KINDS``."""

    name: str
    kind: str = ""


@dataclass(frozen=True)
class Number:
    """A constant that is this number everywhere."""

    value: float


@dataclass(frozen=True)
class Named:
    """A parameter that goes by a name: where it is met again it is the same."""

    name: str


@dataclass(frozen=True)
class Apply:
    """An operator on operands; ``parameters`` are values, or ``Named``."""

    op: str
    operands: tuple[Pattern, ...]
    parameters: Mapping[str, object] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Either:
    """One of several, the first that fits."""

    choices: tuple[Pattern, ...]


@dataclass(frozen=True)
class Part:
    """A part with a name: where it is met again it is the same value."""

    name: str
    pattern: Pattern


Pattern = Hole | Number | Apply | Either | Part


@dataclass(frozen=True)
class Match:
    """What a pattern has met in a graph.

    Attributes:
        values: by hole.
        parameters: by name.
        numbers: of each constant that holds one number what that is; of each other one its array.
        output: what the pattern makes.
    """

    values: Mapping[str, VTensor]
    parameters: Mapping[str, Any]
    numbers: Mapping[str, Any]
    output: VTensor

    def __getitem__(self, name: str) -> Any:
        """The value at a hole, or the parameter of that name."""
        return self.values[name] if name in self.values else self.parameters[name]


#: Further parameters by name, or None where the rule does not hold. A hole of what is made that
#: the pattern has not is a new constant: a pair of its array and the names of its dims.
Given = Callable[[Match], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Rule:
    """An equation: where a graph holds the pattern, it may hold what is made instead.

    Attributes:
        name: what switches it off.
        equation: as mathematics writes it.
        pattern: what is replaced.
        makes: what replaces it; holes that were not met are left out.
        given: the condition, which may compute parameters.
        example: what a test puts into holes and parameters: of a hole the names of its dims, of a
            scalar its number.
        module: whose import registered it.
    """

    name: str
    equation: str
    pattern: Apply | Either
    makes: Apply
    given: Given = lambda _: {}
    example: Mapping[str, Any] = field(default_factory=dict, hash=False)
    module: str = ""

    @classmethod
    def of(cls, name: str, equation: str, pattern: str, makes: str, **more: Any) -> Rule:
        """A rule from two texts.

        Raises:
            GraphError: one of them is none.

        >>> rule = Rule.of("swish", "x / (1 + e^-x)", "Mul(x, Sigmoid(x))", "Swish(x)")
        >>> rule.pattern.op, rule.makes.operands
        ('Mul', (Hole(name='x', kind=''),))
        """
        try:
            left, right = parse(pattern), parse(makes)
        except (SyntaxError, GraphError) as error:
            raise GraphError(f"rule {name}: {error}") from error
        if isinstance(left, Hole | Number | Part) or not isinstance(right, Apply):
            raise GraphError(f"rule {name}: both sides must be operators on something")
        rule = cls(name, equation, left, right, **more)
        if not all(isinstance(root, Apply) for root in rule.roots):
            raise GraphError(f"rule {name}: each choice must be an operator on something")
        return rule

    @property
    def operators(self) -> set[str]:
        """The operators that it speaks of."""
        return {*_operators(self.pattern), *_operators(self.makes)}

    @property
    def made(self) -> set[str]:
        """The operators that it makes."""
        return set(_operators(self.makes))

    @property
    def needs(self) -> list[set[str]]:
        """For each choice of the pattern, the operators without which a graph does not hold it."""
        return [_needed(root) for root in self.roots]

    @property
    def roots(self) -> Sequence[Apply]:
        """The operators that the pattern may end with, on what they are applied to."""
        roots = self.pattern.choices if isinstance(self.pattern, Either) else (self.pattern,)
        return cast("Sequence[Apply]", roots)


def parse(text: str) -> Pattern:
    """The pattern that a text is; see the module's own.

    Raises:
        GraphError: a line is no expression of operators.
        SyntaxError: it is no expression at all.

    >>> parse("half = 0.5 | scalar(s); half")
    Part(name='half', pattern=Either(choices=(Number(value=0.5), Hole(name='s', kind='scalar'))))
    """
    parts: dict[str, Pattern] = {}
    *lines, last = ast.parse("\n".join(map(str.strip, text.strip().splitlines()))).body
    for line in lines:
        if not (isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name)):
            raise GraphError(f"{ast.unparse(line)!r} is no part: name = expression")
        name = line.targets[0].id
        parts[name] = Part(name, _pattern(line.value, parts))
    if not isinstance(last, ast.Expr):
        raise GraphError(f"{ast.unparse(last)!r} is no expression")
    return _pattern(last.value, parts)


def _pattern(tree: ast.expr, parts: Mapping[str, Pattern]) -> Pattern:
    match tree:
        case ast.Name(name):
            return parts.get(name) or Hole(name)
        case ast.Constant(int() | float() as value):
            return Number(float(value))
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return Number(-float(value))
        case ast.BinOp(left, ast.BitOr(), right):
            either = [_pattern(left, parts), _pattern(right, parts)]
            return Either(tuple(_choices(either)))
        case ast.Call(ast.Name("scalar" | "constant" as kind), [ast.Name(name)], []):
            return Hole(name, kind)
        case ast.Call(ast.Name(op), operands, keywords) if op[:1].isupper():
            given = {str(one.arg): _parameter(one.value) for one in keywords}
            return Apply(op, tuple(_pattern(one, parts) for one in operands), given)
    raise GraphError(f"{ast.unparse(tree)!r} is no operator, hole or number")


def _operators(pattern: Pattern) -> Iterator[str]:
    match pattern:
        case Apply(op, operands):
            yield op
            yield from (name for one in operands for name in _operators(one))
        case Either(choices):
            yield from (name for one in choices for name in _operators(one))
        case Part(_, inner):
            yield from _operators(inner)


def _needed(pattern: Pattern) -> set[str]:
    match pattern:
        case Apply(op, operands):
            return {op}.union(*map(_needed, operands))
        case Either(choices):
            return set.intersection(*map(_needed, choices))
        case Part(_, inner):
            return _needed(inner)
    return set()


def _choices(patterns: Sequence[Pattern]) -> Sequence[Pattern]:
    rows = [one.choices if isinstance(one, Either) else (one,) for one in patterns]
    return [one for row in rows for one in row]


def _parameter(tree: ast.expr) -> object:
    return Named(tree.id) if isinstance(tree, ast.Name) else ast.literal_eval(tree)
