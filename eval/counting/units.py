"""Files as units: the top-level statements of a file, with the names that they define and use.

A unit is a statement at the top of a Python file, or a definition at the top of a C++ file or of a
namespace in it. In C++ a binding (``m.def("name", ...)``) is a unit of its own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from eval.counting.source import bare_cpp, cpp_lines, python_lines

ROOT = Path(__file__).parents[2]
#: Prefix of the name of a binding's unit, so that no C++ name equals it.
BOUND = "python:"

_WORD = re.compile(r"[A-Za-z_]\w*")
_USED = re.compile(r"(?<![\w.])(?<!->)[A-Za-z_]\w*")
_TEMPLATE = re.compile(r"^\s*template\s*<[^{;()]*?>\s*(?=[a-zA-Z])")
_TYPE = re.compile(r"\b(?:class|struct|enum(?:\s+class)?|using)\s+(\w+)")
_MEMBER = re.compile(r"(\w+)(?:<[^()]*>)?::~?\w+(?:\s*\S{1,2})?$")
_NAMESPACE = re.compile(r"(?:inline\s+)?namespace(?:\s+[\w:]+)?$|extern\s+\"\"$|NB_MODULE\(.*\)$")
_BINDING = re.compile(r"\bm\.def\(\s*\"(\w+)\"")


@dataclass(frozen=True, eq=False)
class Unit:
    """A top-level statement or definition of a file.

    Attributes:
        path: the file, relative to the root of the repository.
        lines: the numbers, from 1, of its lines of code.
        names: the names that it defines.
        uses: the names that occur in it, in Python with the part after their dots.
        target: for an import, tuples of the name defined, the module, and the name in the module
            ("" for the module itself); empty for other statements.
        node: the statement in Python; None in C++.
    """

    path: str
    lines: frozenset[int]
    names: frozenset[str]
    uses: frozenset[str]
    target: tuple[tuple[str, str, str], ...] = ()
    node: ast.stmt | None = None

    @property
    def first(self) -> int:
        """The number of its first line of code; 0 without lines."""
        return min(self.lines, default=0)


@cache
def python_units(path: str) -> tuple[Unit, ...]:
    """Return the units of a Python file; the module's docstring is not one.

    Args:
        path: the file, relative to the root of the repository.
    """
    text = (ROOT / path).read_text()
    code, module = python_lines(text), path.partition(".py")[0].replace("/", ".")
    units = []
    for node in ast.parse(text).body:
        ahead = [decorator.lineno for decorator in getattr(node, "decorator_list", [])]
        whole = range(min([node.lineno, *ahead]), (node.end_lineno or node.lineno) + 1)
        if lines := frozenset(code.intersection(whole)):
            imported = tuple(_imported(node, module.removesuffix(".__init__")))
            names = frozenset(name for name, _, _ in imported) | frozenset(_made(node))
            units.append(Unit(path, lines, names, frozenset(_used(node)), imported, node))
    return tuple(units)


def _made(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))


def _imported(node: ast.stmt, module: str) -> Iterator[tuple[str, str, str]]:
    """Yield the ``target`` of an import, also of imports under an ``if``.

    Args:
        node: any statement; other statements yield nothing.
        module: the name of the module that has the statement.
    """
    if isinstance(node, ast.If):
        for statement in node.body:
            yield from _imported(statement, module)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            yield alias.asname or top, alias.name if alias.asname else top, ""
    elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
        for alias in node.names:
            beside = f"{module}.{node.module}" if node.level and node.module else None
            yield alias.asname or alias.name, beside or node.module or module, alias.name


def _used(node: ast.stmt) -> Iterator[str]:
    """Yield the names in a statement, also with the part after their dots, and calls on the way:
    ``eigen.pad``, ``native.load().pad``.
    """
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute) and (dotted := _dotted(part)):
            yield dotted


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    if isinstance(node, ast.Call) and not node.args and (before := _dotted(node.func)):
        return f"{before}()"
    return ""


@cache
def cpp_units(path: str) -> tuple[Unit, ...]:
    """Return the units of a C++ file.

    The last unit, without names, has the lines outside of definitions: preprocessor, namespaces.
    """
    text = (ROOT / path).read_text()
    code = cpp_lines(text)
    units = list(_chunks(path, bare_cpp(text), bare_cpp(text, strings=False), code))
    rest = frozenset(code) - frozenset[int]().union(*(unit.lines for unit in units))
    return (*units, Unit(path, rest, frozenset(), frozenset()))


def _chunks(path: str, text: str, blank: str, code: dict[int, str]) -> Iterator[Unit]:
    """Yield the units of a C++ file, which end at semicolons and braces outside all other braces.

    Braces of namespaces are ignored.

    Args:
        path: the file.
        text: its text without comments.
        blank: the same without the text of strings.
        code: its lines of code, by their numbers.
    """
    number, depth, words, begin = 1, 0, "", 0
    kept = text.split("\n")
    for line in blank.split("\n"):
        if depth == 0 and line.lstrip().startswith("#"):
            number += 1
            continue
        for place, letter in enumerate(line):
            words += letter
            begin = begin or (number if letter.strip() else 0)
            depth += (letter in "{(") - (letter in "})")
            if (letter == "{" and depth == 1 and _NAMESPACE.match(words[:-1].strip())) or depth < 0:
                words, depth, begin = "", 0, 0
            elif depth == 0 and (letter == ";" or (letter == "}" and _ends(line[place + 1 :]))):
                span = range(begin, number + 1)
                yield from _units(path, words, [*span], kept, code)
                words, begin = "", 0
        words, number = words + "\n", number + 1


def _ends(rest: str) -> bool:
    """Return whether a closing brace ends a definition; ``rest`` is the line after the brace.

    It does not if a semicolon, a comma or a parenthesis follows.
    """
    return not rest.strip().startswith((";", ",", ")"))


def _units(
    path: str, words: str, span: list[int], text: list[str], code: dict[int, str]
) -> Iterator[Unit]:
    """Yield the units of a definition: each binding in it, and the definition without them.

    Args:
        path: the file.
        words: the definition without comments and strings.
        span: the numbers of its lines.
        text: all lines of the file, without comments.
        code: the file's lines of code, by their numbers.
    """
    lines = frozenset(span) & code.keys()
    uses = frozenset(_USED.findall(words))
    whole = "\n".join(text[span[0] - 1 : span[-1]])
    starts = [*_BINDING.finditer(whole)]
    for match, after in zip(starts, [*starts[1:], None], strict=False):
        part = whole[match.start() : after.start() if after else len(whole)]
        first = span[0] + whole[: match.start()].count("\n")
        inside = frozenset(range(first, first + _statement(part))) & lines
        bare = bare_cpp("\n".join(text[n - 1] for n in sorted(inside)), strings=False)
        yield Unit(path, inside, frozenset({BOUND + match[1]}), frozenset(_USED.findall(bare)))
        lines -= inside
    yield Unit(path, lines, frozenset(_defined(words)), uses if not starts else frozenset())


def _statement(part: str) -> int:
    """Return the number of lines up to the semicolon that ends the first statement of ``part``."""
    depth, lines = 0, 1
    for letter in bare_cpp(part, strings=False):
        depth += (letter in "{(") - (letter in "})")
        lines += letter == "\n"
        if letter == ";" and depth <= 0:
            break
    return lines


def _defined(words: str) -> Iterator[str]:
    """Yield the name that a definition defines; for a method the name of its class.

    Args:
        words: the definition's text, without comments and strings.
    """
    words = _TEMPLATE.sub("", words)
    head = re.split(r"[({=;]", words, maxsplit=1)[0].strip()
    if match := _TYPE.search(words.partition("{")[0].partition("=")[0]):
        yield match[1]
    elif member := _MEMBER.search(head):
        yield member[1]
    elif found_words := _WORD.findall(head):
        yield found_words[-1]
