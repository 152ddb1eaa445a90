"""Imports: their time, what they load, and which floor may import which."""

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
import pytest

from libdesc.registry import registry
from ops import Relu
from tests.frontends.support import model
from tests.libraries.processes import ROOT, printed
from vtensor import Graph, save_onnx
from vtensor.language.operators import OPERATORS

PACKAGES = ("vtensor", "ptensor", "libdesc", "resolver", "optimizer", "ops")

#: What ``import vtensor`` must not load.
HEAVY = """
PIL eigen highspy ml_dtypes networkx onnx onnxruntime pulp rich typer matplotlib
libdesc.onednn._onednn vtensor.runtime._replay
"""
LIMIT_MS = 100

#: What a run of a graph of one node must not load.
UNNEEDED = """
PIL highspy matplotlib ml_dtypes onnx onnxruntime pulp rich typer fractions sqlite3 statistics
vtensor.frontends.folding vtensor.runtime.tuning.profile vtensor.runtime.tuning.timings
ops.activations ops.convolution importlib.metadata vtensor.runtime.lock.lock_file
vtensor.runtime.tuned_later vtensor.runtime.tuning.tolerant_choice
"""

#: What a session must not load that reuses the choice of an earlier process.
CHOOSING = """
optimizer.choice.bound optimizer.joint optimizer.lho optimizer.sink optimizer.choice.solver
resolver.extend resolver.modes
"""

#: What a session must not load whose model VTensor has written and an earlier process has read.
READING = """
google.protobuf ml_dtypes onnx vtensor.frontends.network vtensor.frontends.rebuild
vtensor.frontends.builder vtensor.frontends.folding vtensor.frontends.control
vtensor.frontends.tracing onnx.reference
"""

#: What ONNX's package imports, and VTensor never needs.
THEIRS = "onnx.compose onnx.gen_proto onnx.version_converter onnx.serialization"

#: What a cached plan must not load: nodes, other libraries, and half of what makes plans.
MAKING = """
tomllib ops concurrent.futures libdesc.numpy libdesc.eigen.native libdesc.onednn.handlers
optimizer.fold optimizer.match optimizer.rewrite libdesc.eigen.elementwise libdesc.registry
libdesc.routine ptensor.evaluation ptensor.tensor resolver.lowered optimizer.choice.problem
vtensor.language.graph vtensor.language.operators vtensor.runtime.planning.choosing
vtensor.runtime.planning.tracing vtensor.runtime.recording.recorder vtensor.runtime.tuning.tuner
lazy_loader numpy.typing
"""


def python(code: str, *options: str, at: Path = ROOT, path: str = "") -> str:
    """Return what a fresh interpreter prints, with these folders on its path."""
    return printed(*options, "-c", code, at=at, environment={"PYTHONPATH": path} if path else {})


def loaded(names: str) -> str:
    """Return code that prints which of these modules are loaded."""
    return f"import sys\nprint(*[name for name in {names.split()} if name in sys.modules])\n"


def heavy(code: str) -> list[str]:
    """Return the heavy modules and native libraries that are loaded after this code."""
    native = (
        "from pathlib import Path\nmaps = Path('/proc/self/maps')\n"
        "text = maps.read_text() if maps.exists() else ''\n"
        "print(*[name for name in ('libdnnl', '_eigen') if name in text])\n"
    )
    return python(f"{code}\n{loaded(HEAVY)}{native}").split()


def milliseconds(statement: str, path: str = "") -> float:
    """Return the time of a statement in a fresh interpreter that has NumPy; the best of several."""
    code = (
        "import time, numpy\nbegin = time.perf_counter()\n"
        f"{statement}\nprint((time.perf_counter() - begin) * 1e3)"
    )
    return min(float(python(code, path=path)) for _ in range(5))


def test_import_loads_nothing_heavy() -> None:
    assert heavy("import vtensor; vtensor.VTensor; vtensor.Graph; vtensor.errors") == []
    for module in ("networkx", "PIL", "vtensor.runtime._replay"):
        assert module in heavy(f"import vtensor, {module}")


def test_import_is_fast(tmp_path: Path) -> None:
    assert milliseconds("import vtensor") < LIMIT_MS
    (tmp_path / "slow.py").write_text(f"import time\ntime.sleep({LIMIT_MS / 1e3})\n", "utf-8")
    assert milliseconds("import vtensor, slow", str(tmp_path)) > LIMIT_MS


ONE_NODE = """
import numpy as np
from ops import Relu
from vtensor import Graph, Session
graph = Graph("one")
graph.output(graph.add(Relu(), graph.input("x", {"N": 1, "C": 2})), "y")
with Session(graph, threads=1) as session:
    print(*session.run(None, {"x": np.array([[-1, 2]], np.float32)})[0][0])
"""


def test_graph_of_one_node_loads_what_it_needs() -> None:
    assert python(f"{ONE_NODE}\n{loaded(UNNEEDED)}").splitlines() == ["0.0 2.0", ""]


MEANS = """
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


def test_plan_by_measured_speeds_loads_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTENSOR_COSTS", "calibrated")
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path))
    needed = "vtensor.runtime.tuning.calibration"
    modules = loaded(f"importlib.metadata statistics {needed}")
    basis, names = python(f"{MEANS}\n{modules}").splitlines()
    if basis == "declared":
        pytest.skip("nothing is to be chosen here")
    assert names == needed


RELU = "m (float[1,2] x) => (float[1,2] y) { y = Relu(x) }"


@pytest.fixture
def one_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a model of one node and use a cache; return code that runs it."""
    monkeypatch.setenv("VTENSOR_CACHE", "on")
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / "cache"))
    graph = Graph("one")
    graph.output(graph.add(Relu(), graph.input("x", {"N": 1, "C": 2})), "y")
    save_onnx(graph, tmp_path / "one.onnx")
    return (
        "import numpy as np\nfrom vtensor import Session\n"
        f"session = Session({str(tmp_path / 'one.onnx')!r}, threads=1)\n"
        "print(*session.run(None, {'x': np.array([[-1, 2]], np.float32)})[0][0])\n"
    )


@pytest.mark.parametrize("own", [True, False])
def test_second_start_of_a_model_loads_what_it_needs(
    one_node: str, tmp_path: Path, own: bool
) -> None:
    """It reuses the choice of the first one. ONNX itself loads some of the unneeded modules."""
    unneeded = f"{UNNEEDED} {CHOOSING} {THEIRS} {READING}"
    if not own:
        needed = {*READING.split()}
        unneeded = " ".join(name for name in unneeded.split() if name not in needed)
        onnx.save(model(RELU), tmp_path / "one.onnx")
    assert python(one_node).split() == ["0.0", "2.0"]
    assert python(one_node + loaded(unneeded)).splitlines() == ["0.0 2.0", ""]


def test_cached_plan_loads_what_it_needs(one_node: str) -> None:
    code = one_node + loaded(MAKING)
    first, modules = python(code).splitlines()
    assert first == "0.0 2.0"
    assert modules
    assert python(code).splitlines() == ["0.0 2.0", ""]
    code = one_node.replace("threads=1", "threads=1, libraries=['eigen']")
    eigen = "libdesc.eigen.native libdesc.eigen.elementwise libdesc.eigen.recurrence"
    code += loaded(f"{eigen} resolver.lowered")
    assert "resolver.lowered" in python(code)
    assert python(code).splitlines() == ["0.0 2.0", "libdesc.eigen.native"]


def test_onnx_is_whole_when_more_of_it_is_used(tmp_path: Path) -> None:
    """Its package does not run while a model is read, and runs at the first look at it."""
    onnx.save(model(RELU), file := tmp_path / "one.onnx")
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
    absent = "module 'onnx' has no attribute 'nonsense'"
    assert python(code).splitlines() == [absent, "True", "module True True True"]


DEFER = "from vtensor.frontends.files.lazy_onnx import defer\ndefer()\n"


@pytest.mark.parametrize("look", ["onnx.load", "dir(onnx)", "onnx.__version__", "onnx.__all__"])
def test_any_use_beyond_its_modules_runs_onnx(look: str) -> None:
    code = f"{DEFER}import onnx, sys\nassert 'onnx.compose' not in sys.modules\n{look}\n"
    code += "from onnx import *\nprint(type(onnx).__name__, compose is onnx.compose)"
    assert python(code).split() == ["module", "True"]


def test_onnx_stays_when_it_is_imported_already() -> None:
    code = f"import onnx\n{DEFER}print(type(onnx).__name__)"
    assert python(code).split() == ["module"]


def test_unused_modules_of_protocol_buffers_run_when_used() -> None:
    """The messages are in C++ here; a module of those in Python can be imported all the same."""
    code = f"""{DEFER}
from onnx import ModelProto
import sys
from google.protobuf.internal import python_message as it
print(type(it).__name__, 'google.protobuf.text_format' in sys.modules)
print(it.GeneratedProtocolMessageType.__name__, type(it).__name__)
"""
    assert python(code).split() == [
        *("LazyModule", "False", "GeneratedProtocolMessageType", "module")
    ]


def test_every_public_name_resolves() -> None:
    vtensor = importlib.import_module("vtensor")
    assert {"VTensor", "Graph", "Session", "errors"} <= set(vtensor.__all__)
    for name in vtensor.__all__:
        assert getattr(vtensor, name) is not None
    with pytest.raises(AttributeError):
        vtensor.nonsense  # noqa: B018


@pytest.mark.parametrize(
    "name",
    [
        "libdesc",
        "libdesc.eigen",
        "libdesc.onednn",
        "libdesc.winograd",
        "libdesc.narrow",
        "ptensor",
        "vtensor",
    ],
)
def test_package_has_the_names_of_its_stub(name: str) -> None:
    """Type checkers read the stub as Python, and an import reads its lines."""
    package = importlib.import_module(name)
    stub = ast.parse(Path(str(package.__file__)).with_suffix(".pyi").read_text("utf-8"))
    rows = [row for row in stub.body if isinstance(row, ast.ImportFrom) and row.level]
    names = [alias.asname or alias.name for row in rows for alias in row.names]
    assert names
    assert sorted(names) == sorted(package.__all__)
    for alias in names:
        assert getattr(package, alias) is not None


def test_packages_are_in_one_folder() -> None:
    """A published package has the import name ``ops``, too."""
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
    """Copy the sources, to break them."""
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


#: By file: an import that breaks a floor.
BROKEN = {
    "vtensor/language/dims.py": "import ptensor",
    "ptensor/rows.py": "import libdesc.registry",
    "libdesc/load.py": "import resolver",
    "ops/relu.py": "import resolver.check",
    "ops/softmax.py": "import optimizer",
    "resolver/check.py": "import optimizer",
    "resolver/extend.py": "from ops import Relu",
    "optimizer/pipeline.py": "import vtensor.runtime.execution.plan",
}
#: An import of a higher floor that is no fault.
FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import resolver"


def test_broken_floors_are_found_and_imports_for_types_are_none(copy: Path) -> None:
    """The twin of the contracts in ``pyproject.toml``, which ``make lint`` runs on the sources."""
    for file, line in {**BROKEN, "ptensor/layout.py": FOR_TYPES}.items():
        source = copy / file
        source.write_text(f"{source.read_text(encoding='utf-8')}\n{line}\n", encoding="utf-8")
    text = lint(copy)
    assert text.strip().endswith("\n1"), text
    for file, line in BROKEN.items():
        module = file.removesuffix(".py").replace("/", ".")
        assert f"{module} -> {line.split()[1]}" in text
    assert "ptensor.layout -> resolver" not in text


def test_every_module_of_vtensor_has_its_floor() -> None:
    """The package has two floors, so a new module must be in the table."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [layers] = [
        contract["layers"]
        for contract in table["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers" and "containers" not in contract
    ]
    placed = {name.strip("() ") for layer in layers for name in layer.replace("|", ":").split(":")}
    modules = {
        f"vtensor.{path.stem}"
        for path in (ROOT / "vtensor").iterdir()
        if (path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py"))))
        and not path.stem.startswith("_")
    }
    assert modules <= placed
    assert set(PACKAGES) - {"vtensor"} <= placed


def test_star_import_of_ops_has_every_operator() -> None:
    names: dict[str, object] = {}
    exec("from ops import *", names)
    registry()
    assert names.keys() - {"__builtins__"} == OPERATORS.keys()
    assert names["Conv2D"] is OPERATORS["Conv2D"].cls


def imports(folder: Path) -> nx.DiGraph[str]:
    """Return the graph of imports, with those for types and in functions."""
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
    """Return the groups of modules that import each other, directly or not."""
    parts = nx.strongly_connected_components(imports(folder))
    return sorted(sorted(part) for part in parts if len(part) > 1)


def test_no_two_files_import_each_other() -> None:
    """Not even for their types."""
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
def test_planted_circle_is_found(tmp_path: Path, line: str) -> None:
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


def test_passes_of_the_background_are_imported_before() -> None:
    """So that no import is in progress there when the process forks."""
    code = (
        "import sys\nfrom optimizer.pipeline import LEVELS, PASSES, import_passes, pass_of\n"
        "import_passes()\nbefore = set(sys.modules)\n"
        "for name in {name for names in LEVELS.values() for name in names if name in PASSES}:\n"
        "    try:\n        pass_of(name)(None, None)\n    except AttributeError:\n        pass\n"
        "print(sorted(set(sys.modules) - before))"
    )
    assert python(code) == "[]\n"
