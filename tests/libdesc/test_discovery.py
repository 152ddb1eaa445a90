"""Descriptions and operators of others: from a path variable and from entry points."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from libdesc.installed import version_of
from tests.libraries.processes import printed

ROOT = Path(__file__).parents[2]

GOOD = """
[library]
name     = "goodlib"
priority = 90
devices  = ["cpu"]
invokers = [".invokers"]
"""
INVOKERS = """
import numpy as np
from libdesc import invoker
from ptensor import PTensor, lib_tagger

@invoker("Relu", library="goodlib", python=True)
def relu(ctx, op, x, y):
    src, dst = PTensor(x).require("CN"), PTensor(y).require("CN")
    if lib_tagger("goodlib", [src], [dst]):
        return
    np.maximum(src.data(), 0, out=dst.data())
"""
RUN = """
import logging
records = []
class Keep(logging.Handler):
    def emit(self, record):
        records.append(record.getMessage())
logging.getLogger("vtensor.libraries").addHandler(Keep())

import vtensor
import numpy as np
from libdesc.registry import registry
from ops import Relu
g = vtensor.Graph("tiny")
g.output(g.add(Relu(), g.input("x", {"N": 2, "C": 2})), "y")
with vtensor.Session(g, optimize="ewo") as session:  # by priority alone
    [y] = session.run(None, {"x": np.array([[-1, 2], [3, -4]], np.float32)})
    print(y.tolist(), [step.library for step in session.plan.steps if step.op == "Relu"])
for origin, reason in registry().problems:
    print("problem:", origin, "->", reason)
for record in records:
    print("warning:", record)
"""


def python(code: str, **environment: str) -> list[str]:
    """The lines that a fresh interpreter prints; warnings are errors there too."""
    return printed("-W", "error", "-c", code, environment=environment).splitlines()


def good(at: Path) -> Path:
    """A folder with a library that takes Relu."""
    made = at / "goodlib"
    made.mkdir(parents=True)
    (made / "goodlib.toml").write_text(GOOD, encoding="utf-8")
    (made / "invokers.py").write_text(INVOKERS, encoding="utf-8")
    return made


def distribution(at: Path, entry_points: str) -> None:
    """What an installed distribution with entry points leaves behind."""
    info = at / "thirdparty-1.0.dist-info"
    info.mkdir(parents=True)
    metadata = "Metadata-Version: 2.1\nName: thirdparty\nVersion: 1.0\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    (info / "entry_points.txt").write_text(entry_points, encoding="utf-8")


def test_path_variable(tmp_path: Path) -> None:
    """The good one runs; the broken one is reported, warned of and skipped."""
    broken = tmp_path / "broken.toml"
    broken.write_text("[library]\nname = 3\n", encoding="utf-8")
    paths = os.pathsep.join([str(broken), str(good(tmp_path)), ""])
    reason = f"{broken}: library.name = 3 must be an identifier"
    assert python(RUN, VTENSOR_LIBRARIES=paths) == [
        "[[0.0, 2.0], [3.0, 0.0]] ['goodlib']",
        f"problem: VTENSOR_LIBRARIES: {broken} -> {reason}",
        f"warning: problem with VTENSOR_LIBRARIES: {broken}: {reason}",
    ]


def test_without_the_path_variable() -> None:
    """The twin: it is the variable that brings the library."""
    [line] = python(RUN, VTENSOR_LIBRARIES="")
    assert line.startswith("[[0.0, 2.0], [3.0, 0.0]]")
    assert "goodlib" not in line


def test_a_broken_one_does_not_break_the_import(tmp_path: Path) -> None:
    assert python("import vtensor, ops; print('ok')", VTENSOR_LIBRARIES=str(tmp_path)) == ["ok"]


def test_a_name_that_is_taken_is_a_problem(tmp_path: Path) -> None:
    twin = tmp_path / "twin.toml"
    twin.write_text('[library]\nname = "numpy"\npriority = 1\ndevices = ["cpu"]\n', "utf-8")
    lines = python(RUN, VTENSOR_LIBRARIES=str(twin))
    assert lines[0].startswith("[[0.0, 2.0], [3.0, 0.0]]")
    assert f"{twin}: library 'numpy' is already registered by " in lines[1]


def test_invokers_that_fail_are_a_problem(tmp_path: Path) -> None:
    made = good(tmp_path)
    (made / "invokers.py").write_text(INVOKERS + "1 / 0\n", encoding="utf-8")
    lines = python(RUN, VTENSOR_LIBRARIES=str(made))
    assert "goodlib" not in lines[0]
    assert lines[1].endswith(
        "library.invokers: '.invokers' does not import: ZeroDivisionError: division by zero"
    )


def test_a_module_that_exits_is_a_problem(tmp_path: Path) -> None:
    """It does not end the process."""
    made = good(tmp_path)
    (made / "invokers.py").write_text("import sys\nsys.exit(3)\n", encoding="utf-8")
    lines = python(RUN, VTENSOR_LIBRARIES=str(made))
    assert "goodlib" not in lines[0]
    assert lines[1].endswith("library.invokers: '.invokers' does not import: SystemExit: 3")


def test_entry_points(tmp_path: Path) -> None:
    """A distribution brings a library, an operator without a definition, and one of each that does
    not load.
    """
    good(tmp_path)
    (tmp_path / "thirdparty.py").write_text(
        "from pathlib import Path\n"
        "def folder():\n    return Path(__file__).parent / 'goodlib'\n"
        "text = str(folder())\n",
        encoding="utf-8",
    )
    (tmp_path / "thirdops.py").write_text(
        "from vtensor.operators import operator\n"
        "from vtensor.tensor import VTensor\n"
        "@operator('Third', dims={'x': '*', 'y': '*'})\n"
        "class Third:\n"
        "    def compute(self, ctx, x):\n"
        "        y = VTensor(x.dtype, x.dims, ctx.output(0))\n"
        "        ctx.dispatch(self, [x], [y])\n"
        "        return y\n",
        encoding="utf-8",
    )
    distribution(
        tmp_path,
        "[vtensor.libraries]\ngoodlib = thirdparty:folder\nabsent = thirdparty:nothing\n"
        "[vtensor.operators]\nthird = thirdops\nmissing = no_such_module_of_theirs\n",
    )
    lines = python(
        RUN + "from ops import Third\nprint(Third())\n",
        PYTHONPATH=str(tmp_path),
        VTENSOR_LIBRARIES="",
    )
    assert lines[0] == "[[0.0, 2.0], [3.0, 0.0]] ['goodlib']"
    assert lines[-1] == "Third()"
    problems = sorted(line for line in lines if line.startswith("problem: "))
    assert problems[0].startswith("problem: entry point absent = thirdparty:nothing -> Attribute")
    assert problems[1].startswith(
        "problem: entry point missing = no_such_module_of_theirs -> ModuleNotFoundError: "
    )
    assert problems[2].startswith(f"problem: operator {tmp_path / 'thirdops.py'}:3 -> ")
    assert problems[2].endswith("Third has no invoker on numpy, which must be its definition")
    assert len([line for line in lines if line.startswith("warning: ")]) == len(problems) == 3


def test_each_operator_of_ours_has_its_definition() -> None:
    """The twin: nothing is reported, not even of the one operator that NumPy does not define."""
    code = (
        "from libdesc.registry import registry as r; print(r().problems, len(r().invokers) > 100)"
    )
    assert python(code, VTENSOR_LIBRARIES="") == ["[] True"]


def test_an_entry_point_may_be_a_path(tmp_path: Path) -> None:
    good(tmp_path)
    (tmp_path / "thirdparty.py").write_text(
        "import pathlib\npath = pathlib.Path(__file__).parent / 'goodlib'\n", encoding="utf-8"
    )
    distribution(tmp_path, "[vtensor.libraries]\ngoodlib = thirdparty:path\n")
    lines = python(RUN, PYTHONPATH=str(tmp_path), VTENSOR_LIBRARIES="")
    assert lines == ["[[0.0, 2.0], [3.0, 0.0]] ['goodlib']"]


def test_an_invoker_that_does_not_fit_is_reported_when_its_operator_is_imported(
    tmp_path: Path,
) -> None:
    made = good(tmp_path)
    wrong = INVOKERS.replace("python=True", 'python=True, dtypes={"z": ["f32"]}')
    (made / "invokers.py").write_text(wrong, encoding="utf-8")
    lines = python(RUN, VTENSOR_LIBRARIES=str(made))
    assert lines[0].startswith("[[0.0, 2.0], [3.0, 0.0]]")
    assert lines[1].startswith(f"problem: invoker {made / 'invokers.py'}:")
    assert lines[1].endswith("dtypes or inplace names 'z'; the operands of Relu are x, y")


def test_what_a_broken_library_had_imported_stays(tmp_path: Path) -> None:
    made = good(tmp_path)
    broken = "from ops import Relu\n" + INVOKERS + "1 / 0\n"
    (made / "invokers.py").write_text(broken, encoding="utf-8")
    lines = python(RUN, VTENSOR_LIBRARIES=str(made))
    assert lines[0].startswith("[[0.0, 2.0], [3.0, 0.0]]")
    assert "goodlib" not in lines[0]
    assert lines[1].endswith("does not import: ZeroDivisionError: division by zero")


READY = (
    "from vtensor.language.operators import OPERATORS; from libdesc.registry import ready; ready()"
)
#: A network of one node.
RELU = """
import numpy as np, vtensor
from ops import Relu
g = vtensor.Graph("tiny")
g.output(g.add(Relu(), g.input("x", {"N": 2})), "y")
vtensor.Session(g).run(None, {"x": np.ones(2, np.float32)})
"""
#: Prints the files of operators that are imported.
FILES = """
import sys
print(*sorted(name for name in sys.modules if name.startswith("ops.") and "._" not in name))
"""


@pytest.mark.parametrize(
    ("code", "files"),
    [
        (READY, ""),
        (RELU, "ops.relu"),
        (f"{READY}; OPERATORS.spellings('Conv', 13)", "ops.convolution"),
        (f"{READY}; OPERATORS.structural('reshape')", "ops.reshape"),
        (f"{READY}; ready().rules_for(['Mul', 'HardSigmoid'])", "ops.hardswish"),
    ],
)
def test_only_what_is_asked_for_is_imported(code: str, files: str) -> None:
    assert python(code + FILES, VTENSOR_LIBRARIES="")[-1] == files


def test_all_are_there_where_all_are_asked_for() -> None:
    """The twin."""
    found = python(f"{READY}; print(*OPERATORS)" + FILES)
    names = {file.stem for file in (ROOT / "ops").glob("[!_]*.py")}
    assert set(found[1].split()) == {f"ops.{name}" for name in names}
    assert len(found[0].split()) > 100


def test_registering_reads_no_source() -> None:
    code = (
        "import inspect\n"
        "def read(*_):\n    raise SystemExit('source is read')\n"
        "inspect.findsource = inspect.getsourcelines = read\n"
        "from libdesc.registry import registry\n"
        "relu = registry().operators['Relu']\n"
        "print(relu.file, relu.line)"
    )
    [found] = python(code)
    file, line = found.split()
    assert Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1].startswith("@")


def test_a_file_that_the_index_does_not_have(tmp_path: Path) -> None:
    """An author need not make the index to try a new operator."""
    text = (ROOT / "ops" / "hardswish.py").read_text(encoding="utf-8")
    (tmp_path / "fresh.py").write_text(text.replace("HardSwish", "Fresh"), encoding="utf-8")
    code = (
        f"import ops\nops.__path__.append({str(tmp_path)!r})\nfrom ops import Fresh\nprint(Fresh())"
    )
    assert python(code) == ["Fresh()"]


def test_threads_ask_for_one_operator_at_once() -> None:
    """Nobody sees it before its last invoker is there."""
    code = """
import sys, threading
sys.setswitchinterval(1e-6)
from libdesc.registry import ready
from vtensor.language.operators import OPERATORS
found, seen = ready(), []
def ask():
    OPERATORS["Relu"]
    seen.append(len(found.candidates("Relu", "cpu")))
threads = [threading.Thread(target=ask) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print(len(seen), min(seen) == max(seen) >= 3)
"""
    assert python(code, VTENSOR_LIBRARIES="") == ["8 True"]


def test_two_threads_ask_for_the_registry_at_once() -> None:
    """Whoever comes second waits until it is filled."""
    code = """
import sys, threading, time
sys.setswitchinterval(1e-6)
from libdesc.registry import registry
seen = []
def ask():
    found = registry()
    seen.append((len(found.libraries), len(found.invokers)))
threads = [threading.Thread(target=ask) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print(len(set(seen)), len(seen))
"""
    assert python(code) == ["1 8"]


def test_an_invoker_of_no_operator_is_a_problem(tmp_path: Path) -> None:
    """A misspelt name would otherwise be an invoker that nothing ever calls."""
    made = good(tmp_path)
    (made / "invokers.py").write_text(INVOKERS.replace('"Relu"', '"ReLU"'), encoding="utf-8")
    lines = python(RUN, VTENSOR_LIBRARIES=str(made))
    assert "goodlib" not in lines[0]
    assert lines[1].startswith("problem: invoker ")
    assert lines[1].endswith("'ReLU'; it is never called; did you mean 'Relu'?")


def test_versions_are_those_of_folders() -> None:
    assert version_of("onnx") == version("onnx")
    with pytest.raises(PackageNotFoundError):
        version_of("nobody")
