"""Fig. 10: lines of code of operators, next to TensorFlow's: ``python -m eval.figures.loc``.

A line counts unless it is blank, a comment or documentation. The code in ``eval/counting`` finds
which lines belong to an operator. VTensor's lines are counted in three ways:

- *operation*: the lines in ``ops/`` that the operator uses, shared helpers in full;
- *written for it*: the lines that it uses and fewer than eight operators share, in ``ops/``, the
  folders of the libraries and their C++: the rule by which TensorFlow's lines were counted;
- *reached*: all lines that it uses there, those that many operators share included.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from eval.counting import theirs
from eval.counting.framework import CONTRADICTION, folders
from eval.counting.reach import (
    LIBRARIES,
    SIXTEEN,
    baseline,
    baseline_tiers,
    described,
    reached,
    spells,
    tiers,
)
from eval.counting.units import Unit
from eval.drawing import bars, drawn
from eval.experiment import QUICK, AsJson, Folder, Scope, Store, alone
from eval.figures.paper import paper
from eval.markdown import percent, picture, table, told

Row = dict[str, Any]
PARTS = ("operation", *LIBRARIES)
#: The tiers of TensorFlow's lines that count in the widest comparison, in which lines that many
#: operators share count, too.
WIDE = (*theirs.CORE, "generic", "handler")
NAME = "loc"
TITLE = "Lines of code of an operator (Fig. 10)"


def row(operator: str, tier: Mapping[Unit, str]) -> Row:
    """Return the row of an operator, with its numbers of lines of code in every way of counting.

    They are VTensor's by part and tier, the baseline's, and those of other frameworks.

    Args:
        operator: the operator's name.
        tier: the tier of each unit of code, the result of ``tiers``.
    """
    units = reached(operator)
    counts = Counter[tuple[str, str]]()
    for unit, part in units.items():
        counts[part, tier[unit]] += len(unit.lines)
    core = {unit for unit in units if tier[unit] != "generic"}
    aware, shared = baseline(operator), baseline_tiers()
    in_ops = [unit for unit in units if unit.path.startswith("ops/")]
    return {
        "operator": operator,
        **{f"{part}_{kind}": counts[part, kind] for part in PARTS for kind in WIDE[:3]},
        "operation": _lines(in_ops),
        "operation_bare": _lines(unit for unit in in_ops if not spells(unit)),
        "written": _lines(core),
        "written_python": _lines(unit for unit in core if unit.path.endswith(".py")),
        "written_files": len({unit.path for unit in core}),
        "python": _lines(unit for unit in units if unit.path.endswith(".py")),
        "reached": _lines(units),
        "baseline": _lines(aware),
        "baseline_written": _lines(unit for unit in aware if shared[unit] != "generic"),
        "tensorflow": theirs.lines(operator),
        "tensorflow_processor": theirs.lines(operator, libraries=theirs.PROCESSOR),
        "tensorflow_wide": theirs.lines(operator, WIDE),
        "tensorflow_layout": theirs.layout_lines(operator),
        "tensorflow_files": theirs.files(operator),
        **{name: theirs.peers().get((name, operator)) for name in ("onnxruntime", "pytorch")},
    }


def total() -> Row:
    """Return the row of the sixteen operators together, in which shared lines count once."""
    units = frozenset(unit for name in SIXTEEN for unit in reached(name))
    aware = frozenset(unit for name in SIXTEEN for unit in baseline(name))
    tier, shared = tiers(), baseline_tiers()
    in_ops = [unit for unit in units if unit.path.startswith("ops/")]
    core = [unit for unit in units if tier[unit] != "generic"]
    return {
        "operator": "distinct",
        "operation": _lines(in_ops),
        "operation_bare": _lines(unit for unit in in_ops if not spells(unit)),
        "written": _lines(core),
        "written_python": _lines(unit for unit in core if unit.path.endswith(".py")),
        "python": _lines(unit for unit in units if unit.path.endswith(".py")),
        "reached": _lines(units),
        "baseline": _lines(aware),
        "baseline_written": _lines(unit for unit in aware if shared[unit] != "generic"),
        "descriptions": described(),
        "tensorflow": theirs.distinct(SIXTEEN),
        "tensorflow_processor": theirs.distinct(SIXTEEN, libraries=theirs.PROCESSOR),
        "tensorflow_wide": theirs.distinct(SIXTEEN, WIDE),
    }


def _lines(units: Iterable[Unit]) -> int:
    """Return the number of lines of code of ``units``; a line of several units counts once."""
    return len({(unit.path, line) for unit in units for line in unit.lines})


#: By name of a comparison: VTensor's column of the rows, and the column with which it is compared.
COMPARED = {
    "operation, TensorFlow's core": ("operation", "tensorflow"),
    "operation, its core without GPU": ("operation", "tensorflow_processor"),
    "operation, TensorFlow's with what is shared widely": ("operation", "tensorflow_wide"),
    "written for it, TensorFlow's core": ("written", "tensorflow"),
    "written for it, its core without GPU": ("written", "tensorflow_processor"),
    "reached, TensorFlow's with what is shared widely": ("reached", "tensorflow_wide"),
    "operation, the layout-aware baseline": ("operation", "baseline"),
    "operation but for ONNX, the layout-aware baseline": ("operation_bare", "baseline"),
    "Python written for it, the baseline's": ("written_python", "baseline_written"),
    "Python reached, the baseline's": ("python", "baseline"),
}


def reductions(rows: Sequence[Row], ours: str, before: str) -> dict[str, float]:
    """Return by operator the share of lines that is saved: (before - ours) / before.

    Args:
        rows: the rows of operators; one whose column ``before`` has no number is left out.
        ours, before: the names of the two columns that are compared.
    """
    return {
        row["operator"]: (row[before] - row[ours]) / row[before] for row in rows if row.get(before)
    }


def measure(_: Scope, store: Store) -> None:
    """Count the lines of the operators in ``SIXTEEN`` and of the framework.

    They are counted again if the store has them, since that takes only seconds.
    """
    tier = tiers()
    kept = store.table(NAME, ["operator"])
    for number, operator in enumerate(SIXTEEN):
        store.advance(f"lines of {operator}", number, len(SIXTEEN))
        kept.add([row(operator, tier)])
    kept.add([total()])
    store.table("loc_framework", ["folder"]).add(folders())


def section(store: Store) -> Iterator[str]:
    """Yield the tables, the plot and the comparison with the paper's figures."""
    rows = list(store.table(NAME, ["operator"]))
    operators = [row for row in rows if row["operator"] != "distinct"]
    everything = rows[-1]
    plot(operators, store.folder / NAME)
    yield told(__doc__)
    yield from _table(operators, everything)
    yield picture(NAME, "lines of each operator, ours by part beside TensorFlow's")
    yield from _marks(operators, everything)
    yield from _framework(store)


def _table(rows: Sequence[Row], everything: Row) -> Iterator[str]:
    heads = ["operator", "operation", "written for it", *(f"of it {part}" for part in PARTS)]
    heads += ["reached", "layout-aware baseline", "TensorFlow", "without GPU", "about layouts"]
    heads += ["with what is shared widely", "ONNX Runtime", "PyTorch"]
    lines = []
    for row in (*rows, everything):
        parts = [_both(row, part) for part in PARTS]
        keys = ("reached", "baseline", "tensorflow", "tensorflow_processor", "tensorflow_layout")
        cells = [row.get(key) for key in (*keys, "tensorflow_wide", "onnxruntime", "pytorch")]
        lines.append([row["operator"], row["operation"], row["written"], *parts, *cells])
    yield table(heads, lines)
    yield (
        "Each row counts what is shared in full; *distinct* counts it once. All operators"
        f" also share {everything['descriptions']} lines of the three libraries' descriptions and"
        " of their handlers. NumPy is the definition of every"
        " operator, which TensorFlow has not; cuDNN and CUDA, which TensorFlow has, have no"
        " counterpart here: *without GPU* leaves them out. TensorFlow's lines are of v1.14.0,"
        " counted as [tensorflow_operator_loc.md](../data/tensorflow_operator_loc.md) says; those"
        " of ONNX Runtime 1.21 and PyTorch 2.6 are there for six operators."
    )


def _both(one: Row, part: str) -> int | None:
    keys = [f"{part}_{tier}" for tier in theirs.CORE]
    return sum(one[key] for key in keys) if keys[0] in one else None


def _marks(rows: Sequence[Row], everything: Row) -> Iterator[str]:
    """Yield the table of reductions next to the paper's, and notes on it.

    Args:
        rows: the rows of operators.
        everything: the row of ``total``.
    """
    said, lines = paper("lines"), []
    head = f"paper: {said['mean_reduction']} %"
    for name, (ours, before) in COMPARED.items():
        shares = reductions(rows, ours, before)
        least, most = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
        whole = (everything[before] - everything[ours]) / everything[before]
        ends = (f"{percent(shares[end])} ({end})" for end in (least, most))
        worse = ", ".join(name for name, share in shares.items() if share < 0) or "none"
        lines.append([name, percent(fmean(shares.values())), *ends, percent(whole), worse])
    marks = f"paper: {said['least_reduction']} %", f"paper: {said['most_reduction']} %"
    yield "How many lines fewer, as a share of those before:"
    yield table(
        ["ours, beside", f"mean ({head})", *marks, "distinct lines", "where we need more"], lines
    )
    by = {row["operator"]: row for row in rows}
    conv, pool = by["Conv2D"], by["AvgPool"]
    conv_said, pool_said = said["conv2d"], said["avgpool"]
    yield (
        f"Conv2D: the paper has {conv_said['before']} lines in {conv_said['before_files']} files"
        f" before and {conv_said['after']} in {conv_said['after_files']} after; this count"
        f" {conv['tensorflow']} in {conv['tensorflow_files']} before, and after {conv['operation']}"
        f" in `ops/`, {conv['written']} written for it in {conv['written_files']} files,"
        f" {conv['reached']} reached. AvgPool on MKL-DNN alone: about {pool_said['before']} and"
        f" {pool_said['after']} in the paper; after, here on all three libraries,"
        f" {pool['operation']}, {pool['written']} and {pool['reached']}."
    )
    yield (
        "Not comparable: the paper's operators are C++ on both sides, counted by hand; ours are"
        " Python, which takes fewer lines for reasons that are not layouts. The baseline in Python"
        " is there for that: the same sixteen operators on the same bindings, in f32 alone, called"
        " directly, which is why all that ours reach in Python is more: that serves all operators"
        " of the repository, other element types and fusion. Ours also hold what TensorFlow keeps"
        " elsewhere or has not: ONNX spellings in both directions (left out where *but for ONNX* is"
        " said), traits for the optimizer, the NumPy definition. Our C++ kernels on Eigen count as"
        " written for an operator, though TensorFlow's files for them"
        " (`eigen_spatial_convolutions.h`) do not."
    )


def _framework(store: Store) -> Iterator[str]:
    rows = list(store.table("loc_framework", ["folder"]))
    yield "The framework itself (`--framework`), lines of code by folder:"
    heads = ["folder", "Python", "C++", "the paper's counterpart", "its lines"]
    keys = ("folder", "python", "cpp", "counterpart", "paper")
    yield table(heads, ([row[key] for key in keys] for row in rows))
    yield CONTRADICTION


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw each operator's lines, stacked by part, next to TensorFlow's, as in Fig. 10."""
    names = [row["operator"] for row in rows]
    ends = {
        "written for the operator": (theirs.CORE, "tensorflow"),
        "reached, with all that many operators share": (WIDE[:3], "tensorflow_wide"),
    }
    with drawn(path, panels=2) as panels:
        for axes, (title, (kinds, key)) in zip(panels, ends.items(), strict=True):
            before = {"TensorFlow 1.14": [row[key] for row in rows]}
            after = {
                part: [sum(row[f"{part}_{kind}"] for kind in kinds) for row in rows]
                for part in PARTS
            }
            bars(axes, names, before, width=0.4, begin=-0.4, colours=("0.75",))
            bars(axes, names, after, width=0.4, begin=0, title=title, ylabel="lines of code")


def main(
    framework: Annotated[bool, typer.Option(help="Ours by folder, alone.")] = False,
    tensorflow_src: Annotated[
        Path | None, typer.Option(help="A checkout of TensorFlow, to count its lines again.")
    ] = None,
    to: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Count lines of code of operators, print the tables and draw the plot."""
    if tensorflow_src:
        differ = list(theirs.recounted(tensorflow_src))
        for lines, code, layout in differ:
            where = f"{lines.operator} {lines.path}:{lines.first}-{lines.last}"
            print(f"{where}: {lines.code} and {lines.layout} kept, {code} and {layout} counted")
        print(f"{len(theirs.ranges()) - len(differ)} of {len(theirs.ranges())} ranges agree")
        raise typer.Exit(bool(differ))
    if framework:
        for line in folders():
            print(*line.values(), sep="\t")
        print(CONTRADICTION)
        return
    alone(sys.modules[__name__], QUICK, to, again=True, as_json=as_json)


if __name__ == "__main__":
    typer.run(main)
