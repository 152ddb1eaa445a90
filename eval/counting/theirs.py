"""Lines of code of TensorFlow's operators, from ``eval/data``, and their recount in a checkout."""

from __future__ import annotations

import csv
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from eval.counting.source import cpp_lines

DATA = Path(__file__).parents[1] / "data"
#: VTensor's name of an operator by TensorFlow's, if the two differ.
NAMES = {
    "DepthwiseConv2dNative": "DepthwiseConv2D",
    "FusedBatchNorm": "BatchNorm",
    "ConcatV2": "Concat",
}
#: The values of ``Range.library`` for code that runs without a GPU, as all of VTensor's does.
PROCESSOR = ("framework", "eigen", "mkldnn")
#: The tiers whose lines are compared with VTensor's.
CORE = ("own", "family")


class Range(NamedTuple):
    """A range of lines of a TensorFlow file that belongs to an operator: a row of the data.

    Attributes:
        operator: VTensor's name of the operator.
        library: ``framework``, ``eigen``, ``mkldnn``, ``cudnn`` or ``cuda``.
        path: the file, in TensorFlow's repository.
        commit: the commit at which the lines were counted.
        first, last: numbers, from 1, of the first and the last line.
        code: how many of the lines are code.
        layout: how many of the lines of code are about layouts.
        note: further entries ``key=value``; ``tensorflow_operator_loc.md`` explains all columns.
    """

    operator: str
    library: str
    path: str
    commit: str
    first: int
    last: int
    code: int
    layout: int
    note: str

    @property
    def tier(self) -> str:
        """The range's tier: ``own``, ``family``, ``handler``, ``generic`` or ``infra``."""
        return self._noted("tier")

    @property
    def blocks(self) -> str:
        """Lines about layouts that ``layout_expression`` may miss, as ``64-65 206``; or ``all``."""
        return self._noted("blocks")

    def _noted(self, key: str) -> str:
        match = re.search(rf"\b{key}=([^;]*)", self.note)
        return match[1].strip() if match else ""


@cache
def ranges() -> tuple[Range, ...]:
    """Return all ranges of ``tensorflow_operator_loc.csv``, with VTensor's names of operators."""
    with (DATA / "tensorflow_operator_loc.csv").open() as file:
        return tuple(
            Range(
                NAMES.get(row["operator"], row["operator"]),
                row["library"],
                row["path"],
                row["commit"],
                int(row["first_line"]),
                int(row["last_line"]),
                int(row["lines_code"]),
                int(row["lines_layout"]),
                row["note"],
            )
            for row in csv.DictReader(file)
        )


def lines(
    operator: str, tiers: Sequence[str] = CORE, libraries: Sequence[str] | None = None
) -> int:
    """Return TensorFlow's number of lines of code for an operator.

    Args:
        operator: VTensor's name of the operator.
        tiers: the tiers that count.
        libraries: the libraries that count; None for all.

    >>> lines("Conv2D"), lines("Conv2D", libraries=("eigen", "mkldnn", "cudnn"))
    (2594, 1825)
    """
    return sum(row.code for row in _of(operator, tiers, libraries))


def layout_lines(operator: str) -> int:
    """Return how many of an operator's lines, in the tiers of ``CORE``, are about layouts."""
    return sum(row.layout for row in _of(operator, CORE, None))


def files(operator: str) -> int:
    """Return how many files hold an operator's lines, in the tiers of ``CORE``."""
    return len({row.path for row in _of(operator, CORE, None)})


def distinct(
    operators: Sequence[str],
    tiers: Sequence[str] = CORE,
    libraries: Sequence[str] | None = None,
) -> int:
    """Return the sum of ``lines`` over several operators; shared lines count once."""
    rows = {
        (row.path, row.first, row.last): row.code
        for operator in operators
        for row in _of(operator, tiers, libraries)
    }
    return sum(rows.values())


def _of(operator: str, tiers: Sequence[str], libraries: Sequence[str] | None) -> Iterator[Range]:
    for row in ranges():
        known = libraries is None or row.library in libraries
        if row.operator == operator and row.tier in tiers and known:
            yield row


def recounted(checkout: Path) -> Iterator[tuple[Range, int, int]]:
    """Yield each range whose recount in a checkout differs from the data.

    With it come the recounted numbers of lines of code, and of lines about layouts.

    Args:
        checkout: a clone of TensorFlow's repository.

    Raises:
        SystemExit: the clone lacks the commit of a range.
    """
    known = dict[str, Mapping[int, str]]()
    layout = layout_expression()
    for row in ranges():
        if row.path not in known:
            known[row.path] = cpp_lines(_shown(checkout, row.commit, row.path))
        within = {n: line for n, line in known[row.path].items() if row.first <= n <= row.last}
        marked = _blocks(row)
        about = sum(n in marked or bool(layout.search(line)) for n, line in within.items())
        if (len(within), about) != (row.code, row.layout):
            yield row, len(within), about


def layout_expression() -> re.Pattern[str]:
    """Return the regular expression that finds lines about layouts, from section 5 of
    ``tensorflow_operator_loc.md``.
    """
    notes = (DATA / "tensorflow_operator_loc.md").read_text()
    match = re.search(r"## 5 .*?```\n(.*?)\n```", notes, re.DOTALL)
    assert match, "section 5 of the notes holds the expression"
    return re.compile(match[1])


def _blocks(row: Range) -> set[int]:
    if row.blocks == "all":
        return set(range(row.first, row.last + 1))
    marked = set[int]()
    for begin, end in re.findall(r"(\d+)(?:-(\d+))?", row.blocks):
        marked.update(range(int(begin), int(end or begin) + 1))
    return marked


def _shown(checkout: Path, commit: str, path: str) -> str:
    """Return the text of a file at a commit; the clone's working tree does not matter."""
    command = ["git", "-C", str(checkout), "show", f"{commit}:{path}"]
    ran = subprocess.run(command, capture_output=True, check=False)
    if ran.returncode:
        why = ran.stderr.decode(errors="replace").strip()
        raise SystemExit(f"{checkout} has no {path} at {commit[:12]}, which was counted: {why}")
    return ran.stdout.decode(errors="replace")


@cache
def peers() -> Mapping[tuple[str, str], int]:
    """Return the numbers of lines of ONNX Runtime and PyTorch, by (framework, operator)."""
    lines = defaultdict[tuple[str, str], int](int)
    with (DATA / "peer_operator_loc.csv").open() as file:
        for row in csv.DictReader(file):
            if not row["note"].startswith("tier=infra"):
                lines[row["framework"], row["operator"]] += int(row["lines_code"])
    return lines
