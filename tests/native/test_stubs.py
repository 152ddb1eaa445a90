"""The stubs in the repository are what the modules and the operators are."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nanobind.stubgen import StubGen

from eval.documents import operator_stub
from libdesc.eigen import native
from tests.libraries.processes import ROOT, run_python
from vtensor.language.operators import OPERATORS

MODULES = ["libdesc.onednn._onednn", "vtensor.runtime._replay"]
LEVELS = native.LEVELS[: native.LEVELS.index(native.load_baseline().machine_level()) + 1]


def normal(stub: str) -> str:
    """Return a stub without its formatting."""
    tree = ast.parse(stub)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = inspect.cleandoc(node.value)
    return ast.unparse(tree)


def generated(name: str) -> str:
    """Return the stub that a module should have."""
    generator = StubGen(module=importlib.import_module(name), quiet=True)
    generator.put(generator.module)
    return str(generator.get())


def in_repository(name: str) -> str:
    """Return the stub that a module has."""
    return (ROOT / f"{name.replace('.', '/')}.pyi").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", MODULES)
def test_a_stub_is_up_to_date(name: str) -> None:
    """If not: ``python -m nanobind.stubgen -m NAME -o PATH``, then ``ruff format PATH``."""
    assert normal(in_repository(name)) == normal(generated(name))


@pytest.mark.parametrize(
    ("old", "new"), [("threads: int = 0", "threads: int = 1"), ("Run a step once", "Run a step")]
)
def test_drift_of_a_stub_is_seen(old: str, new: str) -> None:
    stub = in_repository(MODULES[1])
    assert old in stub
    assert normal(stub.replace(old, new)) != normal(generated(MODULES[1]))


def executed(stub: str) -> SimpleNamespace:
    """Run a stub as the Python that it is."""
    module = SimpleNamespace()
    exec(stub, vars(module))
    return module


def said(members: Any) -> Iterator[tuple[str, object]]:
    """Yield of each function its parameters, its result, and its documentation as words."""
    for name, function in vars(members).items():
        if not inspect.isfunction(function) or name.startswith("_"):
            continue
        signature = inspect.signature(function, eval_str=True)
        parameters = [(p.name, p.annotation) for p in signature.parameters.values()]
        result = getattr(signature.return_annotation, "__name__", "")
        words = str(function.__doc__).split()
        yield name, ([p for p in parameters if p[0] != "self"], result, words)


@pytest.mark.parametrize("library", ["eigen", "winograd", "narrow"])
@pytest.mark.parametrize("level", LEVELS)
def test_the_interface_is_each_modules(level: str, library: str) -> None:
    """The declared interface of modules, one an instruction set, is what each says of itself."""
    name = f"libdesc.{library}._{library}_{level}"
    module, interface = executed(generated(name)), executed(in_repository(name.rsplit("_", 1)[0]))
    assert importlib.import_module(name).level == level
    assert dict(said(module)) == dict(said(interface.Kernels))
    assert set(vars(interface.Kernel)) >= {"kernel", "scratch_bytes", "__vtensor_step__"}
    assert isinstance(module.Kernel.kernel, property)


def test_drift_of_an_interface_is_seen() -> None:
    interface = executed(in_repository("libdesc.eigen._eigen"))
    interface.Kernels.softmax.__annotations__["length"] = "float"
    module = executed(generated("libdesc.eigen._eigen_baseline"))
    assert dict(said(module)) != dict(said(interface.Kernels))


def test_the_stub_and_the_index_of_operators_are_up_to_date() -> None:
    """If not: ``python -m eval.documents.operator_stub``."""
    assert operator_stub.FILE.read_text() == operator_stub.stub()
    assert operator_stub.INDEX.read_text() == operator_stub.index()


def test_another_operator_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "from ops.softmax import Softmax as Softmax\n" in operator_stub.stub()
    assert "\nsoftmax Softmax: Softmax\n" in operator_stub.index()
    monkeypatch.delitem(OPERATORS, "Softmax")
    assert "import Softmax" not in operator_stub.stub()
    assert "softmax Softmax" not in operator_stub.index()


#: What a type checker must accept, and must not where it says so.
TYPED = """
from typing import assert_type

from ops import Conv2D, Relu, TopK
from ops import Conf2D  # error
from vtensor import Graph, VTensor


def network(g: Graph, x: VTensor, w: VTensor) -> VTensor:
    Conv2D(stride=2)  # error
    Conv2D(strides="2")  # error
    assert_type(g.add(Conv2D(), x, w), VTensor)
    values, places = g.add(TopK("C", 2), x)
    assert_type(places, VTensor)
    one: VTensor = g.add(TopK("C", 2), x)  # error
    return g.add(Relu(), g.add(Conv2D(strides=(2, 2)), values, w))
"""


def test_a_type_checker_knows_operators_and_what_add_returns(tmp_path: Path) -> None:
    file = tmp_path / "typed.py"
    file.write_text(TYPED)
    done = run_python("-m", "mypy", "--strict", file, timeout=500)
    errors = {line.split(":")[1] for line in done.stdout.splitlines() if ": error: " in line}
    lines = enumerate(TYPED.splitlines(), start=1)
    assert errors == {str(n) for n, line in lines if line.endswith("# error")}, done.stdout
