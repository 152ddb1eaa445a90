"""Unchanged programs: the import hook, ``python -m vtensor.onnxruntime``, and the distribution."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from tests.libraries.processes import ROOT, printed, run_python
from tests.onnxruntime.models import TINY, X, bytes_of
from vtensor.onnxruntime import __version__

#: A program that knows nothing of VTensor; it prints what it sees as JSON.
PROGRAM = """
import importlib.metadata, importlib.util, json, sys
assert importlib.util.find_spec("onnxruntime") is not None
import numpy as np
import onnxruntime as ort
import onnxruntime.capi.onnxruntime_pybind11_state as state
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
from onnxruntime.capi import _pybind_state
from onnxruntime.capi._pybind_state import InvalidArgument
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession as Collected

assert Collected is InferenceSession and state.InvalidArgument is InvalidArgument
assert _pybind_state.SessionOptions is SessionOptions
options = SessionOptions()
options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
options.intra_op_num_threads = 1
session = InferenceSession(sys.argv[1], options, providers=ort.get_available_providers())
x = np.array(json.loads(sys.argv[2]), np.float32)
try:
    session.run(None, {"x": x[0]})
except InvalidArgument as error:
    message = str(error).splitlines()[0]
print(json.dumps({
    "z": session.run(["z"], {"x": x})[0].tolist(),
    "error": message,
    "inputs": [[i.name, i.type, i.shape] for i in session.get_inputs()],
    "version": [ort.__version__, importlib.metadata.version("onnxruntime")],
    "providers": session.get_providers(),
    "own": [sys.argv[0], __name__, sys.argv[3:]],
}))
"""

NEEDS = find_spec("onnxruntime") is None and "ONNX Runtime is not installed"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "tiny.onnx").write_bytes(TINY)
    return tmp_path


def ran(*arguments: object, at: Path, **options: Any) -> dict[str, Any]:
    """Run a program that prints JSON."""
    facts: dict[str, Any] = json.loads(printed(*arguments, at=at, **options).splitlines()[-1])
    return facts


@pytest.mark.parametrize("how", ["path", "module"])
def test_unchanged_program_gives_the_same_answers(folder: Path, how: str) -> None:
    arguments = [folder / "tiny.onnx", json.dumps(X.tolist()), "--more", "-m"]
    program = [folder / "program.py"] if how == "path" else ["-m", "program"]
    ours = ran("-m", "vtensor.onnxruntime", *program, *arguments, at=folder)
    real = ran(*program, *arguments, at=folder)
    np.testing.assert_array_equal(ours.pop("z"), real.pop("z"))
    assert ours.pop("version") == [__version__] * 2 != real.pop("version")
    assert ours.pop("providers")[0] == "VTensorExecutionProvider"
    real.pop("providers")
    assert ours == real
    assert ours["own"][1:] == ["__main__", ["--more", "-m"]]


def test_installed_command_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = folder / "bin" / "command"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nimport onnxruntime, sys\nprint(onnxruntime.__name__)\n"
                       "sys.exit(len(sys.argv))\n")  # fmt: skip
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=":")
    done = run_python("-m", "vtensor.onnxruntime", "command", "one", "two", at=folder)
    assert (done.returncode, done.stdout) == (3, "vtensor.onnxruntime\n"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        ([], 2, "usage:"),
        (["--help"], 0, "usage:"),
        (["-m"], 2, "usage:"),
        (["no-such-program"], 2, "neither a file nor a command"),
    ],
)
def test_usage(arguments: list[str], status: int, text: str) -> None:
    done = run_python("-m", "vtensor.onnxruntime", *arguments)
    assert done.returncode == status
    assert text in done.stdout + done.stderr


def test_failing_program_fails_alike(folder: Path) -> None:
    (folder / "program.py").write_text(
        "import onnxruntime\nonnxruntime.InferenceSession('gone.onnx')\n"
    )
    done = run_python("-m", "vtensor.onnxruntime", "program.py", at=folder)
    assert done.returncode == 1
    assert "NoSuchFile: [ONNXRuntimeError] : 3 : NO_SUCHFILE" in done.stderr


def script(code: str, **options: Any) -> str:
    return printed("-c", dedent(code), **options)


def test_install_inside_of_a_program() -> None:
    script("""
        import importlib.util, sys, vtensor.onnxruntime
        vtensor.onnxruntime.install()
        vtensor.onnxruntime.install()
        import onnxruntime
        assert onnxruntime is vtensor.onnxruntime
        assert onnxruntime.__spec__.name == "vtensor.onnxruntime"
        assert importlib.util.find_spec("onnxruntime.capi._pybind_state") is not None
        assert importlib.util.find_spec("onnxruntime.training") is None
        assert issubclass(onnxruntime.capi.onnxruntime_pybind11_state.Fail, Exception)
        assert not hasattr(onnxruntime.capi, "training")
        try:
            import onnxruntime.training
        except ModuleNotFoundError as error:
            assert error.name == "onnxruntime.training"
        else:
            raise AssertionError
        try:
            from onnxruntime import ModelCompiler
        except ImportError:
            pass
        else:
            raise AssertionError
        from importlib.metadata import PackageNotFoundError, distribution, version
        assert distribution("onnxruntime").metadata["Name"] == "onnxruntime"
        assert version("numpy")
        try:
            version("onnxruntime-gpu")
        except PackageNotFoundError:
            pass
    """)


@pytest.mark.skipif(NEEDS, reason=str(NEEDS))
def test_install_after_the_installed_package_is_refused() -> None:
    script("""
        import onnxruntime, vtensor.onnxruntime
        from vtensor.errors import InputError
        try:
            vtensor.onnxruntime.install()
        except InputError as error:
            assert "imported already" in str(error)
        else:
            raise AssertionError
        import onnxruntime as again
        assert again is onnxruntime is not vtensor.onnxruntime
    """)


@pytest.mark.skipif(NEEDS, reason=str(NEEDS))
def test_quantization_is_the_installed_package(tmp_path: Path) -> None:
    source = bytes_of(
        "g (float[n, 3] x) => (float[n, 2] y) <float[3, 2] w = {0.5, -1, 2, 3, 1, -0.25}> "
        "{ y = MatMul(x, w) }"
    )
    (tmp_path / "m.onnx").write_bytes(source)
    printed_lines = script("""
        import sys, numpy as np, vtensor.onnxruntime
        vtensor.onnxruntime.install()
        import onnxruntime
        from onnxruntime import quantization
        import onnxruntime.quantization.calibrate as calibrate
        from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic
        from onnxruntime.quantization import quantize_static
        assert "onnxruntime.quantization.calibrate" in sys.modules
        assert quantization.QuantType is QuantType
        assert calibrate.onnxruntime is not onnxruntime is vtensor.onnxruntime
        assert calibrate.onnxruntime.InferenceSession is not onnxruntime.InferenceSession

        class Reader(CalibrationDataReader):
            def __init__(self):
                self.arrays = iter([{"x": np.ones((2, 3), np.float32)}])
            def get_next(self):
                return next(self.arrays, None)

        quantize_dynamic("m.onnx", "dynamic.onnx", weight_type=QuantType.QUInt8)
        quantize_static("m.onnx", "static.onnx", Reader())
        session = onnxruntime.InferenceSession("dynamic.onnx")
        assert type(session).__module__ == "vtensor.onnxruntime.session"
        print(session.run(None, {"x": np.ones((1, 3), np.float32)})[0].tolist())
    """, at=tmp_path)  # fmt: skip
    assert (tmp_path / "static.onnx").exists()
    np.testing.assert_allclose(json.loads(printed_lines.splitlines()[-1]), [[3.5, 1.75]], atol=0.1)


def test_quantization_without_the_installed_package(tmp_path: Path) -> None:
    script("""
        import importlib.util, sys
        from vtensor import onnxruntime as ort
        from vtensor.onnxruntime import real_package
        real_package.sys = type("sys", (), {"path": [], "meta_path": sys.meta_path})
        ort.install()
        assert not hasattr(ort, "quantization")
        assert importlib.util.find_spec("onnxruntime.quantization") is None
        try:
            real_package.passed("quantization")
        except ModuleNotFoundError as error:
            assert "pip install onnxruntime" in str(error)
        else:
            raise AssertionError
    """)


def test_distribution_of_the_same_name_leads_to_vtensor() -> None:
    import tomllib

    place = ROOT / ".ci" / "onnxruntime"
    project = tomllib.loads((place / "pyproject.toml").read_text())["project"]
    assert (project["name"], project["version"]) == ("onnxruntime", __version__)
    assert project["dependencies"] == ["vtensor-layouts"]
    for line in ("import onnxruntime", "import onnxruntime.capi._pybind_state"):
        script(
            f"""
            {line}
            import onnxruntime, onnxruntime.capi.onnxruntime_pybind11_state as state
            assert onnxruntime.__name__ == "vtensor.onnxruntime"
            from vtensor.onnxruntime import errors
            assert state.Fail is errors.Fail
            """,
            environment={"PYTHONPATH": str(place)},
        )


def test_import_is_light() -> None:
    script("""
        import sys
        from vtensor import onnxruntime as ort
        options = ort.SessionOptions()
        ort.get_available_providers(), ort.__version__, ort.GraphOptimizationLevel
        heavy = {"onnx", "onnxruntime", "networkx", "pulp", "vtensor.runtime"} & {*sys.modules}
        assert not heavy, heavy
    """)
