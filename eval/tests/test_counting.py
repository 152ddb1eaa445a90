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


def test_what_is_a_line_of_code() -> None:
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
    found = {name: one for one in units.cpp_units.__wrapped__("a.cpp") for name in one.names}
    assert set(found) == {"Box", "size", "bind", "python:pool", "python:pad"}
    assert found["size"].lines == frozenset(range(9, 14))
    assert "helper" in found["size"].uses
    assert "x" not in found["size"].uses  # a member, of whatever it may be
    assert "size" in found["python:pool"].uses
    assert "pad" in found["python:pad"].uses
    assert found["bind"].uses == frozenset()  # binding one does not use the others


def test_an_operator_reaches_what_it_uses_and_no_other() -> None:
    found = {
        (unit.path, name): part
        for unit, part in reach.reached("MaxPool").items()
        for name in unit.names
    }
    assert found["ops/pooling.py", "MaxPool"] == "operation"
    assert found["ops/pooling.py", "onednn_pool"] == "onednn"
    assert found["ops/pooling.py", "maxpool"] == "numpy"
    assert found["libdesc/onednn/routines_window.py", "Pooling"] == "onednn"
    assert found["native/eigen/module.cpp", "python:pooling"] == "eigen"
    assert found["native/onednn/window.cpp", "pooling"] == "onednn"
    shared = {(unit.path, name) for unit in reach.reached("Add") for name in unit.names}
    assert ("libdesc/eigen/elementwise.py", "pointwise") in shared  # hides the module of its name
    assert ("native/eigen/module.cpp", "python:pointwise") in shared
    assert not {name for _, name in found} & {"AvgPool", "LpPool", "python:convolution", "lppool"}


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


def test_the_core_is_as_the_notes_have_it() -> None:
    sums = [sum(theirs.lines(name, libraries=[one]) for name in reach.SIXTEEN) for one in LIBRARIES]
    assert sums == [2441, 1799, 5664, 1696, 2030]
    assert sum(map(theirs.layout_lines, reach.SIXTEEN)) == 3122


LIBRARIES = ("framework", "eigen", "mkldnn", "cudnn", "cuda")


def test_a_recount_sees_what_differs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", "-C", str(tmp_path), *who, *words]
        ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        return ran.stdout.strip()

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
    assert not {one for one in paths if one.startswith(("ops/", "native/"))}
    assert not paths & {"eval/layout_aware/matmul.py", "eval/layout_aware/lrn.py"}
    assert set(reach.baseline_tiers().values()) == {"own", "family", "generic"}
