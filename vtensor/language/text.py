"""Graphs as text: what ``str(graph)`` prints and ``Graph.parse`` reads.

::

    graph  ::= "graph" name, then lines
    line   ::= "input"    value ":" type
             | "constant" value ":" type ["=" number]
             | values "=" operator "(" parameters ")" [values] ":" types ["@" node]
             | "output"   value ["as" name]
    values ::= value {"," value}
    types  ::= type {"," type}
    type   ::= dtype { dim "=" size }

A node without ``@`` has the name of its first output. Parameters are Python's literals. An open
size is a product, ``6*N``. Names with special characters are quoted as in JSON. The text has no
values of constants, except single numbers.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from vtensor.errors import GraphError, VTensorError
from vtensor.language.operators import OPERATORS
from vtensor.language.symbolic.sizes import OpenSize

if TYPE_CHECKING:
    import numpy as np

    from vtensor.language.node import Node
    from vtensor.language.tensor import VTensor

_NAME = r'(?:"(?:[^"\\]|\\.)*"|[^\s,"()]+)'
_NAMES = rf"{_NAME}(?:, {_NAME})*"
_TYPE = r"\w+(?: \w+=[\w*]+)*"
_INPUT = rf"input (?P<name>{_NAME}) : (?P<type>{_TYPE})"
_CONSTANT = rf"constant (?P<name>{_NAME}) : (?P<type>{_TYPE})(?: = (?P<number>\S+))?"
_OUTPUT = rf"output (?P<name>{_NAME})(?: as (?P<alias>{_NAME}))?"
_HEAD = rf"(?P<outputs>{_NAMES}) = (?P<op>[^\s()]+)(?=\()"
_TAIL = rf"(?: (?P<inputs>{_NAMES}))? : (?P<types>{_TYPE}(?:, {_TYPE})*)(?: @ (?P<node>{_NAME}))?"
#: The errors of an unreadable line: VTensor's own, the parser's, and those of wrong parameters.
_UNREADABLE = (
    VTensorError,
    ValueError,
    TypeError,
    ArithmeticError,
    SyntaxError,
    RecursionError,
    MemoryError,
)
#: The largest integer that a product may be: the largest s64.
_MAX_PRODUCT = (1 << 63) - 1
_RESERVED = {"graph", "input", "constant", "output", "as", ":", "=", "@"}
#: A piece of the text of an operator's parameters: quoted text, a parenthesis, or anything else.
_PIECE = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[()]|[^'"()]+"""


class ReadableGraph(Protocol):
    """The parts of a ``Graph`` that its text is made of."""

    name: str

    @property
    def inputs(self) -> Sequence[str]:
        """The names of the inputs."""

    @property
    def constants(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """The constants' arrays by name."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""

    @property
    def values(self) -> Mapping[str, VTensor]:
        """All values by name."""

    @property
    def outputs(self) -> Mapping[str, str]:
        """By name of each output, the name of its value."""


class WritableGraph(ReadableGraph, Protocol):
    """The methods of a ``Graph`` that reading its text calls."""

    def input(self, name: str, dims: Mapping[str, int | None], dtype: str = "f32") -> VTensor:
        """Add an input, as ``Graph.input`` does."""

    def constant(
        self, array: np.ndarray[Any, Any], dims: str | Sequence[str], name: str = ""
    ) -> VTensor:
        """Add a constant, as ``Graph.constant`` does."""

    def add(self, op: object, *inputs: VTensor, name: str = "", outputs: Sequence[str] = ()) -> Any:
        """Add a node, as ``Graph.add`` does."""

    def output(self, value: VTensor, name: str = "") -> None:
        """Make a value an output, as ``Graph.output`` does."""


G = TypeVar("G", bound=WritableGraph)


def graph_lines(graph: ReadableGraph) -> Iterator[str]:
    """Yield the lines of a graph's text."""
    yield f"graph {quoted(graph.name)}"
    for name in graph.inputs:
        yield f"input {quoted(name)} : {graph.values[name].summary()}"
    for name, array in graph.constants.items():
        yield f"constant {quoted(name)} : {graph.values[name].summary()}{_number(array)}"
    for node in graph.nodes.values():
        yield _node_line(graph, node)
    for alias, name in graph.outputs.items():
        yield f"output {quoted(name)}" + (f" as {quoted(alias)}" if alias != name else "")


def quoted(name: str) -> str:
    """Return a name as it is written in the text: quoted if it has special characters.

    >>> print(quoted("block1/Conv2D:0"), quoted("as"), quoted("a b"))
    block1/Conv2D:0 "as" "a b"
    """
    plain = re.fullmatch(r'[^\s,"()=]+', name) and name not in _RESERVED
    return name if plain else json.dumps(name)


def _node_line(graph: ReadableGraph, node: Node) -> str:
    left, right = (", ".join(map(quoted, row)) for row in (node.outputs, node.inputs))
    call = f"{node.op_name}({_parameters(node.op)})" + f" {right}" * bool(right)
    types = ", ".join(graph.values[name].summary() for name in node.outputs)
    name = "" if node.name == node.outputs[0] else f" @ {quoted(node.name)}"
    return f"{left} = {call} : {types}{name}"


def _parameters(op: object) -> str:
    fields = dataclasses.fields(op)  # type: ignore[arg-type]  # operators are dataclasses
    rows = [(f.name, _literal(getattr(op, f.name)), _literal(f.default)) for f in fields]
    return ", ".join(f"{name}={text}" for name, text, default in rows if text != default)


def _literal(value: Any) -> str:
    """Return a parameter as a Python literal; infinity is written as 1e999, NaN as 1e999*0.

    >>> _literal((1, -math.inf, math.nan)), _literal(("a",))
    ('(1, -1e999, 1e999*0)', "('a',)")
    """
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "1e999*0" if math.isnan(value) else "1e999" if value > 0 else "-1e999"
    if type(value) is tuple:
        return f"({', '.join(map(_literal, value))}{',' * (len(value) == 1)})"
    return repr(value)


def _number(array: np.ndarray[Any, Any]) -> str:
    """Return the end of a constant's line, such as ``" = 0.5"``, if its array is one finite number.

    Empty for any other array, and for element types whose numbers have no literal: complex types
    and those of ``ml_dtypes``.
    """
    if array.ndim or array.dtype.kind not in "fiub" or not math.isfinite(array.item()):
        return ""
    return f" = {array.item()!r}"


def parse_graph(text: str, constants: Mapping[str, np.ndarray[Any, Any]], graph: G) -> G:
    """Add what a text describes to an empty graph, and return the graph; see ``Graph.parse``.

    Args:
        text: a graph's text.
        constants: the constants' arrays by name.
        graph: the empty graph.

    Raises:
        GraphError: a line cannot be read; the message has the line and its number.
    """
    head, *lines = text.rstrip("\n").split("\n")
    if not (match := re.fullmatch(rf"graph ({_NAME}|)", head)):
        raise GraphError(f"line 1: {head!r} does not begin a graph: write 'graph NAME'")
    graph.name = _unquoted(match[1])
    for index, line in enumerate(lines, start=2):
        try:
            _add_line(graph, line, constants)
        except _UNREADABLE as error:
            raise GraphError(f"line {index}: {error}\n  in: {line}") from error
    return graph


def _add_line(
    graph: WritableGraph, line: str, constants: Mapping[str, np.ndarray[Any, Any]]
) -> None:
    """Add the input, constant, output or node of one line to the graph.

    Args:
        graph: the graph.
        line: the line.
        constants: the constants' arrays by name.

    Raises:
        Exception: of a kind in ``_UNREADABLE``, if the line cannot be read.
    """
    if match := re.compile(_INPUT).fullmatch(line):
        dtype, dims = _type(match["type"])
        graph.input(_unquoted(match["name"]), dims, dtype)
    elif match := re.compile(_CONSTANT).fullmatch(line):
        name = _unquoted(match["name"])
        graph.constant(_constant(name, match, constants), list(_type(match["type"])[1]), name)
    elif match := re.compile(_OUTPUT).fullmatch(line):
        name = _unquoted(match["name"])
        graph.output(_value(graph, name), _unquoted(match["alias"] or match["name"]))
    elif match := re.compile(_HEAD).match(line):
        _add_node(graph, line, match)
    else:
        raise GraphError("this is no input, constant, output or node")


def _add_node(graph: WritableGraph, line: str, head: re.Match[str]) -> None:
    end = _closing(line, head.end())
    tail = re.compile(_TAIL).fullmatch(line, end)
    if tail is None:
        raise GraphError(f"after the operator, {line[end:]!r} is not 'INPUTS : TYPES [@ NODE]'")
    outputs = _names(head["outputs"])
    inputs = [_value(graph, name) for name in _names(tail["inputs"])]
    op = _operator(head["op"], line[head.end() : end])
    graph.add(op, *inputs, name=_unquoted(tail["node"] or "") or outputs[0], outputs=outputs)
    types = ", ".join(graph.values[name].summary() for name in outputs)
    if types != tail["types"]:
        raise GraphError(f"the operator returns {types}, and the line says {tail['types']}")


def _constant(
    name: str, match: re.Match[str], constants: Mapping[str, np.ndarray[Any, Any]]
) -> np.ndarray[Any, Any]:
    """Return the array of a constant: from ``constants``, else the number in its line.

    Args:
        name: the constant's name.
        match: the match of ``_CONSTANT`` with the constant's line.
        constants: the constants' arrays by name.

    Raises:
        GraphError: the array is missing, or has another type or number of elements than the line.
    """
    import numpy as np

    from vtensor.language.dtype import from_numpy, numpy_dtype

    dtype, dims = _type(match["type"])
    if name not in constants and match["number"]:
        return np.array(_evaluate(match["number"]), numpy_dtype(dtype))
    if name not in constants:
        raise GraphError(f"the values of {name!r} are not given: constants={{{name!r}: array}}")
    array, sizes = np.asarray(constants[name]), tuple(dims.values())
    if from_numpy(array.dtype) != dtype or array.size != math.prod(sizes):
        actual = f"{from_numpy(array.dtype)} of shape {array.shape}"
        raise GraphError(f"constants[{name!r}] is {actual}, not {match['type']}")
    return array.reshape(sizes)


def _operator(name: str, parameters: str) -> object:
    """Return the operator instance that a node's line applies.

    Args:
        name: the operator's name.
        parameters: the text of the parameters, with its parentheses.

    Raises:
        GraphError: no such operator is registered, or the parameters cannot be read.
    """
    if name not in OPERATORS:
        raise GraphError(
            f"no operator {name!r} is registered; operators are registered when they are imported, "
            "as by 'from ops import ...', and operators made for one model's node cannot be read"
        )
    return OPERATORS[name].cls(**_keyword_arguments(parameters))


@lru_cache(maxsize=256)  # many operators of a network have equal parameters
def _keyword_arguments(parameters: str) -> Mapping[str, Any]:
    """Return the values of an operator's parameters by name.

    Args:
        parameters: the text of the parameters, with its parentheses.

    Raises:
        GraphError: a parameter has no name, or its value is no literal.
    """
    call = ast.parse(f"f{parameters}", mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise GraphError(f"{parameters} are no parameters by name")
    return {str(keyword.arg): _evaluated(keyword.value) for keyword in call.keywords}


def _closing(line: str, start: int) -> int:
    """Return the index after the parenthesis that closes the one at the index ``start`` of a line.

    Raises:
        GraphError: the parenthesis is not closed.
    """
    depth = 0
    for piece in re.compile(_PIECE).finditer(line, start):
        depth += {"(": 1, ")": -1}.get(piece[0], 0)
        if not depth:
            return piece.end()
    raise GraphError("a parenthesis is not closed")


def _evaluate(text: str) -> Any:
    """Return the value of a literal's text."""
    return _evaluated(ast.parse(text, mode="eval").body)


def _evaluated(node: ast.expr) -> Any:
    """Return the value of a parsed literal or product of literals; a name is an open size.

    Raises:
        GraphError: the expression is no literal.
    """
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=elements):
            return tuple(_evaluated(element) for element in elements)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluated(operand)
        case ast.Name(id=name):
            return OpenSize.of(name)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _product(_evaluated(left), _evaluated(right))
    raise GraphError(f"{ast.unparse(node)} is no literal")


def _product(left: Any, right: Any) -> int | float:
    """Return the product of two numbers, of which one or both may be open sizes.

    Python's own ``*`` would also repeat texts and tuples, and its integers have no bound, so a
    short line could take any amount of memory.

    Raises:
        GraphError: a factor is no number, or the product exceeds ``_MAX_PRODUCT``.
    """
    kinds = {type(left), type(right)}
    if not kinds <= {int, float, OpenSize} or kinds == {float, OpenSize}:
        raise GraphError(f"{type(left).__name__} * {type(right).__name__}: only numbers multiply")
    product: int | float = left * right
    size = product.factor if isinstance(product, OpenSize) else product
    if isinstance(size, int) and abs(size) > _MAX_PRODUCT:
        raise GraphError(f"a product is larger than {_MAX_PRODUCT}")
    return product if product == product else math.nan  # a NaN's sign depends on the machine


def _type(text: str) -> tuple[str, dict[str, int]]:
    """Return the element type and the sizes by dim that a text such as ``f32 N=1 C=3`` names.

    Raises:
        GraphError: a dim is there twice.
    """
    dtype, *dims = text.split(" ")
    rows = [dim.split("=") for dim in dims]
    if len({dim for dim, _ in rows}) < len(rows):
        raise GraphError(f"a dim is there twice: {text}")
    return dtype, {dim: _size(size) for dim, size in rows}


def _size(text: str) -> Any:
    """Return the size that a text names, an integer or an open size.

    Plain numbers, the usual case, are read without Python's parser.
    """
    plain = text.isascii() and text.isdecimal() and len(text) < 20
    return int(text) if plain and (text[0] != "0" or text == "0") else _evaluate(text)


def _value(graph: ReadableGraph, name: str) -> Any:
    """Return the VTensor of this name, which an earlier line has added to the graph.

    Raises:
        GraphError: no earlier line has added it.
    """
    if name not in graph.values:
        raise GraphError(f"value {name!r} is used before a line makes it")
    return graph.values[name]


def _names(text: str | None) -> list[str]:
    return [_unquoted(name) for name in re.findall(_NAME, text or "")]


def _unquoted(name: str) -> str:
    return str(json.loads(name)) if name.startswith('"') else name
