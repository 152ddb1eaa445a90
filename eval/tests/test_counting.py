"""Lines of code: which are counted, to whom they belong, and that a recount sees a difference."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from eval.counting import reach, theirs, units
from eval.counting.framework import CONTRADICTION
from eval.counting.source import cpp_lines, python_lines, toml_lines
from eval.figures.loc import TITLE, reductions, row, total
from eval.figures.paper import paper

PYTHON = '''"""Documentation."""
import os


class A:
    """More."""

    # a comment
    text = """no
    documentation"""  # counted


def f():
    return os, (
        1,
    )
'''

CPP = """// documentation
#include <vector>
namespace a {
namespace {
struct Box { int x; };  /* one
  two */
}  // namespace

template <class T>
int size(const T &box) {
    const char *text = "} // no comment {";
    return box.x + helper(text);
}
Box::Box() { reset(); }
void bind(M &m) {
    m.def("pool", [](Box b) { return size(b); },
          R"(Says;
what)");
    m.def("pad", &pad);
}
}
"""


def test_lines_of_code_are_counted() -> None:
    assert sorted(python_lines(PYTHON)) == [2, 5, 9, 10, 13, 14, 15, 16]
    assert sorted(cpp_lines(CPP)) == [2, 3, 4, 5, 7, *range(9, 18), 19, 20, 21]
    assert cpp_lines('REG("A")\n    .Doc(R"doc(\nsays\n)doc");\nint a;') == {
        1: 'REG("A")',
        5: "int a;",
    }
    assert toml_lines("# no\n\n[a]\nb = 1 # yes\n") == {3, 4}


def test_cpp_falls_into_definitions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text(CPP)
    monkeypatch.setattr(units, "ROOT", tmp_path)
    by_name = {name: unit for unit in units.cpp_units.__wrapped__("a.cpp") for name in unit.names}
    assert set(by_name) == {"Box", "size", "bind", "python:pool", "python:pad"}
    assert by_name["size"].lines == frozenset(range(9, 14))
    assert "helper" in by_name["size"].uses
    assert "x" not in by_name["size"].uses  # a member, of whatever it may be
    assert "size" in by_name["python:pool"].uses
    assert "pad" in by_name["python:pad"].uses
    assert by_name["bind"].uses == frozenset()  # binding one does not use the others


def reached(operator: str) -> dict[tuple[str, str], str]:
    """Return the part of each unit that an operator reaches, by file and name."""
    units = reach.reached(operator).items()
    return {(unit.path, name): part for unit, part in units for name in unit.names}


def test_an_operator_reaches_the_units_that_it_uses_and_no_others() -> None:
    pool, add = reached("MaxPool"), reached("Add")
    wanted = {
        ("ops/pooling.py", "MaxPool"): "operation",
        ("ops/pooling.py", "onednn_pool"): "onednn",
        ("ops/pooling.py", "maxpool"): "numpy",
        ("libdesc/onednn/routines_window.py", "Pooling"): "onednn",
        ("native/eigen/module.cpp", "python:pooling"): "eigen",
        ("native/onednn/window.cpp", "pooling"): "onednn",
    }
    assert wanted.items() <= pool.items()
    assert ("libdesc/eigen/elementwise.py", "pointwise") in add  # hides the module of its name
    assert ("native/eigen/module.cpp", "python:pointwise") in add
    assert not {name for _, name in pool} & {"AvgPool", "LpPool", "python:convolution", "lppool"}


def test_rows_and_reductions() -> None:
    tier = reach.tiers()
    conv, add, whole = row("Conv2D", tier), row("Add", tier), total()
    assert conv["tensorflow"] == 2594
    assert conv["tensorflow_files"] == paper("lines", "conv2d", "before_files")
    assert 0 < conv["operation"] < conv["written"] < conv["reached"] <= whole["reached"]
    assert add["written"] < add["operation"]  # nearly all that it uses in ops/ is shared by many
    made = [{"operator": "a", "ours": 3, "theirs": 4}, {"operator": "b", "ours": 6, "theirs": 4}]
    assert reductions(made, "ours", "theirs") == {"a": 0.25, "b": -0.5}
    assert "5,600" in CONTRADICTION
    assert "4,300" in CONTRADICTION
    assert "Fig. 10" in TITLE


def test_the_frameworks_counts_are_those_of_the_notes() -> None:
    libraries = ("framework", "eigen", "mkldnn", "cudnn", "cuda")
    sums = [sum(theirs.lines(op, libraries=[name]) for op in reach.SIXTEEN) for name in libraries]
    assert sums == [2441, 1799, 5664, 1696, 2030]
    assert sum(map(theirs.layout_lines, reach.SIXTEEN)) == 3122


def test_a_recount_sees_what_differs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def git(*words: str) -> str:
        author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", "-C", str(tmp_path), *author, *words]
        return subprocess.check_output(command, text=True, timeout=60).strip()

    (tmp_path / "a.cc").write_text("int a;  // one\n\nint data_format;\nint b;\n")
    git("init", "-q")
    git("add", "a.cc")
    git("commit", "-qm", "one")
    head = git("rev-parse", "HEAD")
    right = theirs.Range("A", "eigen", "a.cc", head, 1, 4, 3, 2, "tier=own; blocks=4-4; x")
    rows = [right, right._replace(code=4), right._replace(layout=1)]
    monkeypatch.setattr(theirs, "ranges", lambda: rows)
    assert list(theirs.recounted(tmp_path)) == [(rows[1], 3, 2), (rows[2], 3, 2)]
    monkeypatch.setattr(theirs, "ranges", lambda: [right._replace(commit="0" * 40)])
    with pytest.raises(SystemExit, match=r"has no a\.cc at 000000000000"):
        list(theirs.recounted(tmp_path))


def test_the_baseline_is_counted_by_the_same_rule() -> None:
    paths = {unit.path for unit in reach.baseline("AvgPool")}
    assert "eval/layout_aware/pooling.py" in paths
    assert not {path for path in paths if path.startswith(("ops/", "native/"))}
    assert not paths & {"eval/layout_aware/matmul.py", "eval/layout_aware/lrn.py"}
    assert set(reach.baseline_tiers().values()) == {"own", "family", "generic"}
