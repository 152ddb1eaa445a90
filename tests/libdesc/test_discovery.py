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
OPERATOR = """\
from vtensor.operators import operator
from vtensor.tensor import VTensor
@operator('Third', dims={'x': '*', 'y': '*'})
class Third:
    def compute(self, ctx, x):
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y
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
    """Return the lines that a fresh interpreter prints; warnings are errors there too."""
    return printed("-W", "error", "-c", code, environment=environment).splitlines()


def good(at: Path, invokers: str = INVOKERS) -> Path:
    """Write a folder with a library that takes Relu."""
    folder = at / "goodlib"
    folder.mkdir(parents=True)
    (folder / "goodlib.toml").write_text(GOOD, encoding="utf-8")
    (folder / "invokers.py").write_text(invokers, encoding="utf-8")
    return folder


def distribution(at: Path, entry_points: str) -> None:
    """Write what an installed distribution with entry points leaves behind."""
    info = at / "thirdparty-1.0.dist-info"
    info.mkdir(parents=True)
    metadata = "Metadata-Version: 2.1\nName: thirdparty\nVersion: 1.0\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    (info / "entry_points.txt").write_text(entry_points, encoding="utf-8")


ANSWER = "[[0.0, 2.0], [3.0, 0.0]]"


def test_the_path_variable_brings_libraries_and_problems(tmp_path: Path) -> None:
    """The good one runs; the broken one is reported, warned of and skipped."""
    broken = tmp_path / "broken.toml"
    broken.write_text("[library]\nname = 3\n", encoding="utf-8")
    paths = os.pathsep.join([str(broken), str(good(tmp_path)), ""])
    reason = f"{broken}: library.name = 3 must be an identifier"
    assert python(RUN, VTENSOR_LIBRARIES=paths) == [
        f"{ANSWER} ['goodlib']",
        f"problem: VTENSOR_LIBRARIES: {broken} -> {reason}",
        f"warning: problem with VTENSOR_LIBRARIES: {broken}: {reason}",
    ]
    [line] = python(RUN, VTENSOR_LIBRARIES="")
    assert line.startswith(ANSWER)
    assert "goodlib" not in line


IMPORT = "library.invokers: '.invokers' does not import: "


@pytest.mark.parametrize(
    ("invokers", "end"),
    [
        # What it had imported before it failed stays.
        (
            f"from ops import Relu\n{INVOKERS}1 / 0\n",
            f"{IMPORT}ZeroDivisionError: division by zero",
        ),
        ("import sys\nsys.exit(3)\n", f"{IMPORT}SystemExit: 3"),
        (INVOKERS.replace('"Relu"', '"ReLU"'), "'ReLU'; it is never called; did you mean 'Relu'?"),
        (
            INVOKERS.replace("python=True", 'python=True, dtypes={"z": ["f32"]}'),
            "dtypes or inplace names 'z'; the operands of Relu are x, y",
        ),
    ],
    ids=["raise", "exit", "name no operator", "name no operand"],
)
def test_invokers_with_a_fault_are_a_problem(tmp_path: Path, invokers: str, end: str) -> None:
    folder = good(tmp_path, invokers)
    lines = python(RUN, VTENSOR_LIBRARIES=str(folder))
    assert lines[0].startswith(ANSWER)
    assert "goodlib" not in lines[0] or "operands" in end
    place = "VTENSOR_LIBRARIES: " if IMPORT in end else f"invoker {folder / 'invokers.py'}:"
    assert lines[1].startswith(f"problem: {place}")
    assert lines[1].endswith(end)


def test_entry_points(tmp_path: Path) -> None:
    """A distribution brings a library, an operator without a definition, and one of each that does
    not load.
    """
    good(tmp_path)
    (tmp_path / "thirdparty.py").write_text(
        "from pathlib import Path\ndef folder():\n    return Path(__file__).parent / 'goodlib'\n",
        encoding="utf-8",
    )
    (tmp_path / "thirdops.py").write_text(OPERATOR, encoding="utf-8")
    distribution(
        tmp_path,
        "[vtensor.libraries]\ngoodlib = thirdparty:folder\nabsent = thirdparty:nothing\n"
        "[vtensor.operators]\nthird = thirdops\nmissing = no_such_module_of_theirs\n",
    )
    code = RUN + "from ops import Third\nprint(Third())\n"
    lines = python(code, PYTHONPATH=str(tmp_path), VTENSOR_LIBRARIES="")
    assert lines[0] == f"{ANSWER} ['goodlib']"
    assert lines[-1] == "Third()"
    absent, missing, third = sorted(line for line in lines if line.startswith("problem: "))
    assert absent.startswith("problem: entry point absent = thirdparty:nothing -> Attribute")
    assert missing.startswith(
        "problem: entry point missing = no_such_module_of_theirs -> ModuleNotFoundError: "
    )
    assert third.startswith(f"problem: operator {tmp_path / 'thirdops.py'}:3 -> ")
    assert third.endswith("Third has no invoker on numpy, which must be its definition")
    assert sum(line.startswith("warning: ") for line in lines) == 3


def test_each_operator_of_ours_has_its_definition() -> None:
    """The twin: nothing is reported, not even of the one operator that NumPy does not define."""
    code = (
        "from libdesc.registry import registry as r; print(r().problems, len(r().invokers) > 100)"
    )
    assert python(code, VTENSOR_LIBRARIES="") == ["[] True"]


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


def test_all_operators_are_imported_where_all_are_asked_for() -> None:
    """The twin."""
    operators, files = python(f"{READY}; print(*OPERATORS)" + FILES)
    names = {file.stem for file in (ROOT / "ops").glob("[!_]*.py")}
    assert set(files.split()) == {f"ops.{name}" for name in names}
    assert len(operators.split()) > 100


def test_registering_reads_no_source() -> None:
    code = (
        "import inspect\n"
        "def read(*_):\n    raise SystemExit('source is read')\n"
        "inspect.findsource = inspect.getsourcelines = read\n"
        "from libdesc.registry import registry\n"
        "relu = registry().operators['Relu']\n"
        "print(relu.file, relu.line)"
    )
    file, line = python(code)[0].split()
    assert Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1].startswith("@")


def test_an_operator_need_not_be_in_the_index(tmp_path: Path) -> None:
    text = (ROOT / "ops" / "hardswish.py").read_text(encoding="utf-8")
    (tmp_path / "fresh.py").write_text(text.replace("HardSwish", "Fresh"), encoding="utf-8")
    path = f"import ops\nops.__path__.append({str(tmp_path)!r})\n"
    assert python(f"{path}from ops import Fresh\nprint(Fresh())") == ["Fresh()"]


#: Prints how many threads got an answer, and how many answers there were.
THREADS = """
import sys, threading
sys.setswitchinterval(1e-6)
from libdesc.registry import ready, registry
from vtensor.language.operators import OPERATORS
seen = []
{before}
def libraries():
    return len(registry().libraries), len(registry().invokers)
def candidates():
    OPERATORS["Relu"]
    return len(ready().candidates("Relu", "cpu"))
threads = [threading.Thread(target=lambda: seen.append({ask}())) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(seen), len(set(seen)), seen[0])
"""


def test_threads_wait_until_the_registry_is_filled() -> None:
    assert python(THREADS.format(before="", ask="libraries"))[0].startswith("8 1 ")


def test_threads_wait_until_an_operator_has_its_invokers() -> None:
    code = THREADS.format(before="ready()", ask="candidates")
    [line] = python(code, VTENSOR_LIBRARIES="")
    threads, answers, count = map(int, line.split())
    assert (threads, answers) == (8, 1)
    assert count >= 3


def test_versions_are_those_of_folders() -> None:
    assert version_of("onnx") == version("onnx")
    with pytest.raises(PackageNotFoundError):
        version_of("nobody")
