"""What importing costs and loads, and which floor may import which."""

from __future__ import annotations

import ast
import importlib
import os
import shutil
import sysconfig
import tomllib
from pathlib import Path

import networkx as nx
import onnx
import onnx.parser
import pytest

from libdesc.registry import registry
from ops import Relu
from tests.libraries.processes import ROOT, printed
from vtensor import Graph, save_onnx
from vtensor.language.operators import OPERATORS

PACKAGES = ("vtensor", "ptensor", "libdesc", "resolver", "optimizer", "ops")

#: What nobody pays for who only imports vtensor.
HEAVY = (
    *("PIL", "eigen", "highspy", "ml_dtypes", "networkx", "onnx", "onnxruntime", "pulp"),
    *("rich", "typer", "matplotlib", "libdesc.onednn._onednn", "vtensor.runtime._replay"),
)
LIMIT_MS = 100


def python(code: str, *options: str, at: Path = ROOT, path: str = "") -> str:
    """Return what a fresh interpreter prints, with these folders on its path."""
    return printed(*options, "-c", code, at=at, environment={"PYTHONPATH": path} if path else {})


def heavy(code: str) -> list[str]:
    """The heavy modules and native libraries that are loaded after this code."""
    tell = (
        "import sys\nfrom pathlib import Path\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules])\n"
        "maps = Path('/proc/self/maps')\n"
        "text = maps.read_text() if maps.exists() else ''\n"
        "print(*[name for name in ('libdnnl', '_eigen') if name in text])\n"
    )
    return python(f"{code}\n{tell}").split()


def milliseconds(statement: str, path: str = "") -> float:
    """How long a statement takes in a fresh interpreter that has NumPy; the best of several."""
    code = (
        "import time, numpy\nbegin = time.perf_counter()\n"
        f"{statement}\nprint((time.perf_counter() - begin) * 1e3)"
    )
    return min(float(python(code, path=path)) for _ in range(5))


def test_import_loads_nothing_heavy() -> None:
    assert heavy("import vtensor") == []
    assert heavy("import vtensor; vtensor.VTensor; vtensor.Graph; vtensor.errors") == []


#: What nobody pays for who runs a graph of one node.
UNNEEDED = (
    *("PIL", "highspy", "matplotlib", "ml_dtypes", "onnx", "onnxruntime", "pulp", "rich", "typer"),
    *(
        "fractions",
        "sqlite3",
        "statistics",
        "vtensor.frontends.folding",
        "vtensor.runtime.tuning.profile",
    ),
    *("vtensor.runtime.tuning.timings", "ops.activations", "ops.convolution", "importlib.metadata"),
    *(
        "vtensor.runtime.lock.lock_file",
        "vtensor.runtime.tuned_later",
        "vtensor.runtime.tuning.tolerant_choice",
    ),
)

#: What nobody pays for who takes over what an earlier process chose.
CHOOSING = (
    *(
        "optimizer.choice.bound",
        "optimizer.joint",
        "optimizer.lho",
        "optimizer.sink",
        "optimizer.choice.solver",
    ),
    *("resolver.extend", "resolver.modes"),
)

#: What nobody pays for who reads a model that we have written, and that an earlier process read.
READING = (
    *("google.protobuf", "ml_dtypes", "onnx", "vtensor.frontends.network"),
    *("vtensor.frontends.rebuild", "vtensor.frontends.builder", "vtensor.frontends.folding"),
    *("vtensor.frontends.control", "vtensor.frontends.tracing", "onnx.reference"),
)

#: What ONNX's package imports, and we never ask for.
THEIRS = ("onnx.compose", "onnx.gen_proto", "onnx.version_converter", "onnx.serialization")

ONE_NODE = """
import sys
import numpy as np
from ops import Relu
from vtensor import Graph, Session
graph = Graph("one")
graph.output(graph.add(Relu(), graph.input("x", {"N": 1, "C": 2})), "y")
with Session(graph, threads=1) as session:
    print(*session.run(None, {"x": np.array([[-1, 2]], np.float32)})[0][0])
"""


def test_one_node_loads_what_it_needs() -> None:
    tell = f"print(*[name for name in {UNNEEDED!r} if name in sys.modules])"
    assert python(f"{ONE_NODE}\n{tell}").splitlines() == ["0.0 2.0", ""]


MEANS = """
import sys
import numpy as np
from ops import Conv2D, Mean
from vtensor import Graph, Session
graph = Graph("means")
x = graph.input("x", {"N": 1, "C": 32, "H": 32, "W": 32})
w = graph.constant(np.ones((64, 32, 3, 3), np.float32), "O I h w")
graph.output(graph.add(Mean(("H", "W")), graph.add(Conv2D(), x, w)), "y")
with Session(graph, threads=1, deterministic=True) as session:
    print(session.plan.certificate.basis)
"""


def test_a_plan_by_speeds_of_this_machine_loads_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTENSOR_COSTS", "calibrated")
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path))
    seen = ("importlib.metadata", "statistics", "vtensor.runtime.tuning.calibration")
    tell = f"print(*[name for name in {seen!r} if name in sys.modules])"
    basis, loaded = python(f"{MEANS}\n{tell}").splitlines()
    if basis == "declared":
        pytest.skip("nothing is to be chosen here")
    assert loaded == "vtensor.runtime.tuning.calibration"


@pytest.mark.parametrize("stored", [True, False])
def test_a_model_of_one_node_loads_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    """Its second start, which takes over what the first one chose. ONNX loads some of that."""
    monkeypatch.setenv("VTENSOR_CACHE", "on")
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / "cache"))
    theirs = {"onnx", "ml_dtypes", "vtensor.frontends.folding"}
    unneeded = [name for name in UNNEEDED if name not in theirs] + [*CHOOSING, *THEIRS]
    if stored:
        graph = Graph("one")
        graph.output(graph.add(Relu(), graph.input("x", {"N": 1, "C": 2})), "y")
        save_onnx(graph, tmp_path / "one.onnx")
        unneeded += READING
    else:
        text = '<ir_version: 8, opset_import: ["" : 17]> m (float[1,2] x) => (float[1,2] y)'
        text += " { y = Relu(x) }"
        onnx.save(onnx.parser.parse_model(text), tmp_path / "one.onnx")
    code = (
        "import sys\nimport numpy as np\nfrom vtensor import Session\n"
        f"session = Session({str(tmp_path / 'one.onnx')!r}, threads=1)\n"
        "print(*session.run(None, {'x': np.array([[-1, 2]], np.float32)})[0][0])\n"
    )
    assert python(code).split() == ["0.0", "2.0"]
    tell = f"print(*[name for name in {unneeded!r} if name in sys.modules])"
    assert python(code + tell).splitlines() == ["0.0 2.0", ""]


#: What looks at nodes, or at libraries beside those that run.
NODES = (
    *("tomllib", "ops", "concurrent.futures", "libdesc.numpy", "libdesc.eigen.native"),
    *("libdesc.onednn.handlers", "optimizer.fold", "optimizer.match", "optimizer.rewrite"),
)

#: What makes plans, and what it is told by: half of what a session imports.
MAKING = (
    *("libdesc.eigen.elementwise", "libdesc.registry", "libdesc.routine", "ptensor.evaluation"),
    *("ptensor.tensor", "resolver.lowered", "optimizer.choice.problem", "vtensor.language.graph"),
    *("vtensor.language.operators", "vtensor.runtime.planning.choosing"),
    *("vtensor.runtime.planning.tracing", "vtensor.runtime.recording.recorder"),
    *("vtensor.runtime.tuning.tuner", "lazy_loader", "numpy.typing"),
)


def test_a_cached_plan_loads_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second start of a model: the first one has saved its plan."""
    monkeypatch.setenv("VTENSOR_CACHE", "on")
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / "cache"))
    graph = Graph("one")
    graph.output(graph.add(Relu(), graph.input("x", {"N": 1, "C": 2})), "y")
    save_onnx(graph, tmp_path / "one.onnx")
    code = (
        "import sys\nimport numpy as np\nfrom vtensor import Session\n"
        f"session = Session({str(tmp_path / 'one.onnx')!r}, threads=1)\n"
        "print(*session.run(None, {'x': np.array([[-1, 2]], np.float32)})[0][0])\n"
        f"print(*[name for name in {NODES + MAKING!r} if name in sys.modules])"
    )
    first, modules = python(code).splitlines()
    assert first == "0.0 2.0"
    assert modules
    assert python(code).splitlines() == ["0.0 2.0", ""]


def test_a_cached_plan_of_other_libraries_loads_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTENSOR_CACHE", "on")
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / "cache"))
    graph = Graph("one")
    graph.output(graph.add(Relu(), graph.input("x", {"N": 1, "C": 2})), "y")
    save_onnx(graph, tmp_path / "one.onnx")
    files = ("native", "elementwise", "recurrence")
    seen = [*(f"libdesc.eigen.{name}" for name in files), "resolver.lowered"]
    code = (
        "import sys\nimport numpy as np\nfrom vtensor import Session\n"
        f"session = Session({str(tmp_path / 'one.onnx')!r}, threads=1, libraries=['eigen'])\n"
        "print(*session.run(None, {'x': np.array([[-1, 2]], np.float32)})[0][0])\n"
        f"print(*[name for name in {seen!r} if name in sys.modules])"
    )
    assert "resolver.lowered" in python(code)
    assert python(code).splitlines() == ["0.0 2.0", "libdesc.eigen.native"]


def test_onnx_is_whole_for_who_asks_for_more_of_it(tmp_path: Path) -> None:
    """Its package has not run when a model has been read, and does at the first look at it."""
    graph = Graph("one")
    graph.output(graph.add(Relu(), graph.input("x", {"N": 1, "C": 2})), "y")
    file = tmp_path / "one.onnx"
    save_onnx(graph, file)
    code = f"""
import sys
from vtensor import Session
Session({str(file)!r})
import onnx
before = onnx.ModelProto, onnx.helper, type(onnx).__name__
assert not hasattr(onnx, "__wrapped__") and type(onnx).__name__ == "Deferred"
try:
    onnx.nonsense
except AttributeError as error:
    print(error)
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    models = list(pool.map(lambda _: onnx.load({str(file)!r}), range(8)))
from onnx import compose
print({{type(model) for model in models}} == {{onnx.ModelProto}} == {{before[0]}})
print(type(onnx).__name__, before[1] is onnx.helper, onnx.__version__ != "", "compose" in dir(onnx))
onnx.checker.check_model(models[0])
"""
    own = "module 'onnx' has no attribute 'nonsense'"
    assert python(code).splitlines() == [own, "True", "module True True True"]


@pytest.mark.parametrize("look", ["onnx.load", "dir(onnx)", "onnx.__version__", "onnx.__all__"])
def test_any_look_beyond_its_modules_runs_onnx(look: str) -> None:
    code = "import sys\nfrom vtensor.frontends.files.lazy_onnx import defer\ndefer()\nimport onnx\n"
    code += f"assert 'onnx.compose' not in sys.modules\n{look}\nfrom onnx import *\n"
    assert python(f"{code}print(type(onnx).__name__, compose is onnx.compose)").split() == [
        "module",
        "True",
    ]


def test_onnx_stays_as_it_is_where_it_is_imported_already() -> None:
    code = "import onnx\nfrom vtensor.frontends.files.lazy_onnx import defer\ndefer()\n"
    assert python(f"{code}print(type(onnx).__name__)").split() == ["module"]


def test_what_protocol_buffers_do_not_use_runs_for_who_asks() -> None:
    """They are in C++ here; a module of those in Python is imported all the same."""
    code = "from vtensor.frontends.files.lazy_onnx import defer\ndefer()\n"
    code += "from onnx import ModelProto\nimport sys\n"
    code += "from google.protobuf.internal import python_message as it\n"
    code += "print(type(it).__name__, 'google.protobuf.text_format' in sys.modules)\n"
    code += "print(it.GeneratedProtocolMessageType.__name__, type(it).__name__)"
    assert python(code).split() == [
        *("LazyModule", "False"),
        *("GeneratedProtocolMessageType", "module"),
    ]


@pytest.mark.parametrize("module", ["networkx", "PIL", "vtensor.runtime._replay"])
def test_the_import_test_can_fail(module: str) -> None:
    assert module in heavy(f"import vtensor, {module}")


def test_import_is_fast() -> None:
    assert milliseconds("import vtensor") < LIMIT_MS


def test_the_speed_test_can_fail(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(f"import time\ntime.sleep({LIMIT_MS / 1e3})\n", "utf-8")
    assert milliseconds("import vtensor, slow", str(tmp_path)) > LIMIT_MS


def test_every_public_name_is_there() -> None:
    """Lazy names that do not resolve would be found by users only."""
    vtensor = importlib.import_module("vtensor")
    assert {"VTensor", "Graph", "Session", "errors"} <= set(vtensor.__all__)
    for name in vtensor.__all__:
        assert getattr(vtensor, name) is not None
    with pytest.raises(AttributeError):
        vtensor.nonsense  # noqa: B018


@pytest.mark.parametrize(
    "name", ["libdesc", "libdesc.eigen", "libdesc.onednn", "libdesc.winograd", "ptensor", "vtensor"]
)
def test_the_names_of_a_package_are_those_that_its_stub_has(name: str) -> None:
    """Type checkers read the stub as Python, and an import reads its lines."""
    package = importlib.import_module(name)
    stub = ast.parse(Path(str(package.__file__)).with_suffix(".pyi").read_text("utf-8"))
    rows = [row for row in stub.body if isinstance(row, ast.ImportFrom) and row.level]
    names = [one.asname or one.name for row in rows for one in row.names]
    assert names
    assert sorted(names) == sorted(package.__all__)
    for one in names:
        assert getattr(package, one) is not None


def test_ops_is_ours() -> None:
    """A published package has the same import name; ours lies beside ``vtensor``."""
    folders = {Path(str(importlib.import_module(name).__file__)).parent.parent for name in PACKAGES}
    assert len(folders) == 1


def lint(folder: Path) -> str:
    """Run import-linter on the packages in a folder, without the editable install."""
    code = (
        "from importlinter.cli import lint_imports\n"
        "print(lint_imports(config_filename='pyproject.toml', no_cache=True))"
    )
    site = sysconfig.get_paths()["purelib"]
    return python(code, "-S", at=folder, path=os.pathsep.join([str(folder), site]))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the sources, to break."""
    for package in PACKAGES:
        kept = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=kept)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


#: A line that breaks a floor, and how the fault is reported, by file.
BROKEN = {
    "vtensor/language/dims.py": ("import ptensor", "vtensor.language.dims -> ptensor"),
    "ptensor/rows.py": ("import libdesc.registry", "ptensor.rows -> libdesc.registry"),
    "libdesc/load.py": ("import resolver", "libdesc.load -> resolver"),
    "ops/relu.py": ("import resolver.check", "ops.relu -> resolver.check"),
    "ops/softmax.py": ("import optimizer", "ops.softmax -> optimizer"),
    "resolver/check.py": ("import optimizer", "resolver.check -> optimizer"),
    "resolver/extend.py": ("from ops import Relu", "resolver.extend -> ops"),
    "optimizer/pipeline.py": (
        "import vtensor.runtime.execution.plan",
        "optimizer.pipeline -> vtensor.runtime.execution.plan",
    ),
}
#: An import of a higher floor that is no fault.
FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import resolver"


def test_broken_floors_are_found_and_imports_for_types_are_none(copy: Path) -> None:
    """The twin of the contracts in ``pyproject.toml``, which ``make lint`` runs on the sources."""
    for file, (line, _) in {**BROKEN, "ptensor/layout.py": (FOR_TYPES, "")}.items():
        source = copy / file
        source.write_text(f"{source.read_text(encoding='utf-8')}\n{line}\n", encoding="utf-8")
    text = lint(copy)
    assert text.strip().endswith("\n1"), text
    assert [fault for _, fault in BROKEN.values() if fault not in text] == []
    assert "ptensor.layout -> resolver" not in text


def test_every_module_of_vtensor_has_its_floor() -> None:
    """It holds two floors, so a new module must say where it stands."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [layers] = [
        contract["layers"]
        for contract in table["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers" and "containers" not in contract
    ]
    placed = {name.strip("() ") for layer in layers for name in layer.replace("|", ":").split(":")}
    found = {
        f"vtensor.{path.stem}"
        for path in (ROOT / "vtensor").iterdir()
        if (path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py"))))
        and not path.stem.startswith("_")
    }
    assert found <= placed
    assert set(PACKAGES) - {"vtensor"} <= placed


def test_ops_gives_every_operator_by_star() -> None:
    names: dict[str, object] = {}
    exec("from ops import *", names)
    registry()
    assert names.keys() - {"__builtins__"} == OPERATORS.keys()
    assert names["Conv2D"] is OPERATORS["Conv2D"].cls


def imports(folder: Path) -> nx.DiGraph[str]:
    """Which module names which, in whatever line: those for types and in functions included."""
    files = {
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in sorted((folder / package).rglob("*.py"))
    }
    graph: nx.DiGraph[str] = nx.DiGraph()
    for name, path in files.items():
        for line in ast.walk(ast.parse(path.read_bytes(), str(path))):
            named = [alias.name for alias in getattr(line, "names", []) if hasattr(alias, "name")]
            if isinstance(line, ast.ImportFrom):
                assert line.level == 0, f"{path}:{line.lineno} is a relative import"
                whole = (f"{line.module}.{one}" for one in named)
                named = [one if one in files else str(line.module) for one in whole]
            if isinstance(line, ast.Import | ast.ImportFrom):
                graph.add_edges_from((name, one) for one in named if one in files and one != name)
    return graph


def circles(folder: Path) -> list[list[str]]:
    """The modules that name each other, directly or on a way round."""
    parts = nx.strongly_connected_components(imports(folder))
    return sorted(sorted(part) for part in parts if len(part) > 1)


def test_no_two_files_import_each_other() -> None:
    """Not even for their types: one of them has what belongs into a third, or into the other."""
    assert circles(ROOT) == []


@pytest.mark.parametrize(
    "line",
    [
        "import ptensor.tensor",
        "from ptensor.tensor import PTensor",
        "from ptensor import tensor",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import ptensor.tensor",
        "def late() -> None:\n    from ptensor.tensor import PTensor",
    ],
)
def test_a_planted_circle_is_found(tmp_path: Path, line: str) -> None:
    """One of two files, and one that goes round over a third."""
    (tmp_path / "ptensor").mkdir()
    texts = {
        "__init__": "",
        "tensor": "import ptensor.evaluation\nimport ptensor.rows\n",
        "evaluation": "from ptensor import rows\n",
        "rows": "import ast\n",
    }
    for planted, found in (
        ("", []),
        (line, [["ptensor.evaluation", "ptensor.rows", "ptensor.tensor"]]),
    ):
        for name, text in texts.items():
            file = tmp_path / "ptensor" / f"{name}.py"
            file.write_text(text + planted * (name == "rows"), encoding="utf-8")
        assert circles(tmp_path) == found


def test_what_chooses_in_the_background_is_imported_before() -> None:
    """So that no import is under way there when the process forks."""
    code = (
        "import sys\nfrom optimizer.pipeline import LEVELS, PASSES, import_passes, pass_of\n"
        "import_passes()\nbefore = set(sys.modules)\n"
        "for name in {name for names in LEVELS.values() for name in names if name in PASSES}:\n"
        "    try:\n        pass_of(name)(None, None)\n    except AttributeError:\n        pass\n"
        "print(sorted(set(sys.modules) - before))"
    )
    assert python(code) == "[]\n"
