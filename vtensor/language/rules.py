"""Rewrite rules: patterns of operators and their replacements, as data.

A rule is a text, an equation between two expressions of registered operators::

    Mul(x, Sigmoid(x))  =  Swish(x)

Names that begin with a small letter are holes. A hole matches any value of a graph; if its name
occurs several times, it is the same value each time. A number matches a constant all of whose
elements are this number, except for rounding. ``scalar(s)`` matches a constant of one number, and
``constant(c)`` any constant. ``a | b`` matches what ``a`` or ``b`` matches. Parameters are given by
name, ``Op(x, parameter=p)``. The name ``p`` stands for the operator's parameter, ``_`` for any
value, and a parameter that is left out must have its default. A line ``name = expression`` before
the pattern gives a name to a part of the pattern; in one match, the name stands for one value.
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

#: The kinds of holes: any value, a constant of one number, any constant.
HOLE_KINDS = ("", "scalar", "constant")


@dataclass(frozen=True)
class Hole:
    """A name in a pattern that matches a value of a graph.

    Its ``kind``, one of ``HOLE_KINDS``, says which values it matches.
    """

    name: str
    kind: str = ""


@dataclass(frozen=True)
class Number:
    """A pattern that matches a constant whose elements are all ``value``, except for rounding."""

    value: float


@dataclass(frozen=True)
class Named:
    """A name in a pattern for an operator's parameter; in one match, it stands for one value."""

    name: str


@dataclass(frozen=True)
class Apply:
    """A pattern that matches an operator applied to operands.

    Attributes:
        op: the operator's name.
        operands: the patterns of the operands.
        parameters: by name of a parameter, the value that it must have, or a ``Named``.
    """

    op: str
    operands: tuple[Pattern, ...]
    parameters: Mapping[str, object] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Either:
    """Several patterns, of which one must match; the first that matches is used."""

    choices: tuple[Pattern, ...]


@dataclass(frozen=True)
class Part:
    """A named part of a pattern: in one match, all its occurrences stand for one value."""

    name: str
    pattern: Pattern


Pattern = Hole | Number | Apply | Either | Part


@dataclass(frozen=True)
class Match:
    """A match of a pattern in a graph.

    Attributes:
        values: the value of the graph that each hole matched, by the hole's name.
        parameters: the values of those operator parameters that have a name in the pattern, by that
            name.
        numbers: for each hole that matched a constant, by the hole's name, the constant's array. If
            it has one element, and that depends on no symbolic size, the number instead.
        output: the value that the last operator of the match computes.
    """

    values: Mapping[str, VTensor]
    parameters: Mapping[str, Any]
    numbers: Mapping[str, Any]
    output: VTensor

    def __getitem__(self, name: str) -> Any:
        """Return the value that the hole of this name matched, or the parameter of this name."""
        return self.values[name] if name in self.values else self.parameters[name]


#: The condition of a rule. It returns further parameters of the replacement, by name; None if the
#: rule does not hold for the match. If the replacement has a hole that the pattern lacks, the hole
#: becomes a new constant. The function then returns, under the hole's name, (array, names of its
#: dims), or (array, names of its dims, element type) if that is not the type of the result.
Given = Callable[[Match], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Rule:
    """A rewrite rule: nodes of a graph that match ``pattern`` may be replaced by those of
    ``makes``.

    Attributes:
        name: the rule's name, by which a session can switch it off.
        equation: the rule in mathematical notation.
        pattern: the expression that is replaced.
        makes: the replacement. An operand is left out if it is a hole that matched no value and
            for which ``given`` returns none.
        given: the condition for the replacement, which may also compute parameters of it.
        example: operands for a test of the rule, by the hole's name: the dim names of the operand,
            or the number of a scalar.
        module: the module that registered the rule.
        holds: a further condition, asked last, which may read large constants.
        early: True for a rule about integers that stand for numbers. It is applied before all
            others, and its result may be of any element type.
    """

    name: str
    equation: str
    pattern: Apply | Either
    makes: Apply
    given: Given = lambda _: {}
    example: Mapping[str, Any] = field(default_factory=dict, hash=False)
    module: str = ""
    holds: Callable[[Match], bool] = lambda _: True
    early: bool = False

    @classmethod
    def of(cls, name: str, equation: str, pattern: str, makes: str, **more: Any) -> Rule:
        """Return a rule, given its pattern and its replacement as texts.

        Args:
            name, equation: the attributes of these names.
            pattern: the expression that is replaced, as text; see ``parse``.
            makes: the replacement, as text.
            more: further attributes of the rule.

        Raises:
            GraphError: a text cannot be read, or is no operator on operands.

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
        """The names of all operators in the pattern and the replacement."""
        return {*_operators(self.pattern), *_operators(self.makes)}

    @property
    def made(self) -> set[str]:
        """The names of the operators in the replacement."""
        return set(_operators(self.makes))

    @property
    def needs(self) -> list[set[str]]:
        """For each alternative of the pattern, the names of the operators that a matching graph
        has.
        """
        return [_needed(root) for root in self.roots]

    @property
    def roots(self) -> Sequence[Apply]:
        """The alternatives of the pattern; the pattern itself if it has no alternatives."""
        roots = self.pattern.choices if isinstance(self.pattern, Either) else (self.pattern,)
        return cast("Sequence[Apply]", roots)


def parse(text: str) -> Pattern:
    """Return the pattern of a text; the module's docstring describes the notation.

    Raises:
        GraphError: a line is no expression of operators.
        SyntaxError: the text is no Python.

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
            parameters = {str(keyword.arg): _parameter(keyword.value) for keyword in keywords}
            return Apply(op, tuple(_pattern(operand, parts) for operand in operands), parameters)
    raise GraphError(f"{ast.unparse(tree)!r} is no operator, hole or number")


def _operators(pattern: Pattern) -> Iterator[str]:
    match pattern:
        case Apply(op, operands):
            yield op
            yield from (name for operand in operands for name in _operators(operand))
        case Either(choices):
            yield from (name for choice in choices for name in _operators(choice))
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
    rows = [pattern.choices if isinstance(pattern, Either) else (pattern,) for pattern in patterns]
    return [choice for row in rows for choice in row]


def _parameter(tree: ast.expr) -> object:
    return Named(tree.id) if isinstance(tree, ast.Name) else ast.literal_eval(tree)
