"""The lines of a file that are code: neither blank, nor comment, nor documentation."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache

#: Python tokens that do not make the line they are in a line of code.
_SILENT = frozenset(
    (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    )
)
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

#: Parts of C++ in which braces and semicolons mean nothing: raw strings, comments, strings.
_CPP = re.compile(
    r'(?P<raw>R"(?P<mark>[^()\s\\]{0,16})\((?P<text>.*?)\)(?P=mark)")'
    r"|(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"""|(?P<string>"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+')""",
    re.DOTALL,
)
#: What ``bare_cpp`` leaves of lines that only begin or end a string of documentation: not code.
_DOC_REST = frozenset(('.Doc(R"', '")', '");', ";"))


@cache
def python_lines(text: str) -> frozenset[int]:
    """Return the numbers, from 1, of the lines of Python that are code.

    >>> sorted(python_lines('\"\"\"A module.\"\"\"\\n\\nx = (1,  # one\\n     2)\\n# end\\n'))
    [3, 4]
    """
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            said = node.body[0]
            lines.difference_update(range(said.lineno, (said.end_lineno or said.lineno) + 1))
    return frozenset(lines)


def bare_cpp(text: str, strings: bool = True) -> str:
    """Return C++ source without its comments and without the text inside its raw strings.

    The number of lines stays the same.

    Args:
        text: the source.
        strings: True keeps the text inside ordinary strings; False removes it, too.
    """

    def bare(match: re.Match[str]) -> str:
        text = match.group()
        if match["raw"] is not None:
            return 'R"' + "\n" * text.count("\n") + '"'
        if match["comment"] is not None:
            return " " + "\n" * text.count("\n")
        return text if strings else '""'

    return _CPP.sub(bare, text)


def cpp_lines(text: str) -> dict[int, str]:
    """Return the lines of C++ source that are code, by line number, from 1; comments are removed.

    >>> cpp_lines('int a;  // one\\n\\n/* two\\n*/ int b;\\n')
    {1: 'int a;', 4: 'int b;'}
    """
    lines = enumerate((line.strip() for line in bare_cpp(text).split("\n")), 1)
    return {number: line for number, line in lines if line and line not in _DOC_REST}


def toml_lines(text: str) -> set[int]:
    """Return the numbers, from 1, of the lines of TOML that are code."""
    lines = enumerate(text.splitlines(), 1)
    return {number for number, line in lines if (bare := line.strip()) and bare[0] != "#"}
