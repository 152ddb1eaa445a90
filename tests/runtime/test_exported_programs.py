"""Plans of other exporters' models, of open sizes too, that are kept as they run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper
from onnx.helper import (
    make_graph,
    make_model,
    make_node,
    make_opsetid,
    make_tensor_value_info,
)

from libdesc import installed
from tests.frontends.support import f32, model
from tests.runtime.opened import NETWORKS
from tests.runtime.test_blueprint import settle
from vtensor import Session
from vtensor.errors import VTensorError
from vtensor.frontends import surface
from vtensor.language.graph import Graph
from vtensor.report import plan_dict
from vtensor.runtime import programs
from vtensor.runtime.entries import FOLDER
from vtensor.runtime.graphs import Graphs
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.programs import KeptPlan
from vtensor.runtime.strategies import Strategies

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]


@pytest.fixture(autouse=True)
def _nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have registered operators; the networks here have none."""
    monkeypatch.setattr(programs, "only_own", lambda: True)


def run(path: Path, feeds: Feeds, cache: Path | None, **options: Any) -> tuple[Session, Array]:
    """A session and what it answers."""
    session = Session(path, threads=1, cache_dir=cache, **options)
    return session, session.run(None, feeds)[0]


def kept(path: Path, feeds: Feeds, cache: Path, **options: Any) -> Array:
    """Have a plan kept; what it answers."""
    run(path, feeds, cache, **options)
    session, found = run(path, feeds, cache, **options)
    assert not isinstance(session.plan, KeptPlan)
    return found


def is_taken(path: Path, feeds: Feeds, cache: Path, **options: Any) -> bool:
    """Whether a plan is taken as it was kept; it answers as one that is made anew."""
    session, found = run(path, feeds, cache, **options)
    _, anew = run(path, feeds, None, **options)
    np.testing.assert_array_equal(found, anew)
    return isinstance(session.plan, KeptPlan)


def weights(seed: int = 0) -> dict[str, Array]:
    """Of ``net``: ``k`` and ``t`` turned are packed, of ``w`` three parts; ``f`` is folded."""
    return {
        "k": f32(64, 64, 3, 3, seed=seed) / 24,
        "w": f32(64, 576, seed=seed) / 8,
        "t": f32(256, 192, seed=seed) / 8,
        "f": f32(256, 96, seed=seed) / 8,
        "parts": np.array([-1, 3, 192]),
        **{f"at{number}": np.array(number) for number in range(3)},
    }


def net(path: Path, beside: bool, given: Mapping[str, Array]) -> Path:
    """Write a model of open sizes, with its large weights in it or in another file."""
    body = """
        c = Conv<pads = [1, 1, 1, 1]>(x, k) r = Relu(c)
        f0 = Transpose<perm = [0, 2, 3, 1]>(r) p0 = MatMul(f0, w) p1 = Flatten<axis = 3>(p0)
        turned = Transpose<perm = [1, 0]>(t) p = Reshape(p1, parts)
        q = Gather<axis = 1>(p, at0) k0 = Gather<axis = 1>(p, at1) v = Gather<axis = 1>(p, at2)
        s0 = Mul(q, k0) s1 = Tanh(s0) s = Add(s1, v) z = MatMul(s, turned)
        twice = Add(f, f) y = MatMul(z, twice)
    """
    text = f"net (float[n, 64, h, 8] x) => (float[m, 96] y) {{ {body} }}"
    proto = model(text, 17, **given)
    if beside:
        data = path.name + ".data"
        path.with_name(data).unlink(missing_ok=True)
        onnx.save(proto, path, save_as_external_data=True, location=data, size_threshold=1 << 10)
    else:
        onnx.save(proto, path)
    return path


@pytest.fixture(params=[False, True], ids=["inside", "beside"])
def beside(request: pytest.FixtureRequest) -> bool:
    """Large weights are in the model, or in a file beside it."""
    return bool(request.param)


X = {"x": f32(2, 64, 8, 8)}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_open_sizes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, path = NETWORKS[name](), tmp_path / "net.onnx"
    onnx.save(network.proto, path)
    first, other = (network.feeds(*one) for one in network.sizes(5, 2))
    wanted = kept(path, first, tmp_path)
    fresh = run(path, first, None)[0]
    with monkeypatch.context() as patch:  # no graph is made
        patch.setattr(Graphs, "given", None)
        patch.setattr("vtensor.frontends.network.read_network", None)
        session, found = run(path, first, tmp_path)
    assert isinstance(session.plan, KeptPlan)
    np.testing.assert_array_equal(found, wanted)
    assert (session.inputs, session.outputs) == (fresh.inputs, fresh.outputs)
    own, anew = (plan_dict(one, "net") for one in (session, fresh))
    own["certificate"] = anew["certificate"]  # which says how long the solver took
    assert own.pop("origin") == {"way": "specialised", "cached": True}
    assert anew.pop("origin") == {"way": "planned", "cached": False}
    assert own == anew
    assert session.values == fresh.values
    assert session.lock().text() == fresh.lock().text()
    np.testing.assert_array_equal(session.run(None, other)[0], fresh.run(None, other)[0])


@pytest.mark.parametrize("used", [False, True])
def test_other_sizes_have_what_was_chosen(
    used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = net(tmp_path / "net.onnx", False, weights())
    kept(path, X, tmp_path)
    for one in (tmp_path / FOLDER).glob("ahead-*"):  # which earlier sessions have foreseen
        one.unlink()
    session, _ = run(path, X, tmp_path)
    assert isinstance(session.plan, KeptPlan)
    if used:
        session.run(None, X)
        settle(session)
    taken = []
    of_plan = Strategies.plan

    def noted(*given: Any, **named: Any) -> Any:
        taken.append(of_plan(*given, **named))
        return taken[-1]

    monkeypatch.setattr(Strategies, "plan", noted)
    for n in (3, 4):
        x = {"x": f32(n, 64, 6, 8)}
        wanted = run(path, x, None)[1]
        taken.clear()
        np.testing.assert_allclose(session.run(None, x)[0], wanted, rtol=1e-4, atol=1e-4)
        assert session.plan.taken_from == {"x": (2, 64, 8, 8)}
        assert all(taken)


def test_other_sizes_need_neither_its_graph_nor_its_weights_again(
    beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = net(tmp_path / "net.onnx", beside, weights()), {"x": f32(3, 64, 6, 8)}
    kept(path, X, tmp_path)
    wanted = run(path, other, None)[1]
    session, _ = run(path, X, tmp_path)
    shapes, made = list[Any](), Graphs.given

    def noted(graphs: Graphs, key: PlanKey) -> Graph:
        shapes.append(key.shapes)
        return made(graphs, key)

    monkeypatch.setattr(Graphs, "given", noted)
    have = session._runner.open()._workspace.weights
    before = have.nbytes
    np.testing.assert_array_equal(session.run(None, other)[0], wanted)
    assert shapes == [{"x": (3, 64, 6, 8)}]
    assert session.plan.taken_from == {"x": (2, 64, 8, 8)}
    # Only what is folded is packed again: the entry holds it, and no array of the model.
    rows, columns = weights()["f"].shape
    padded = rows * -(-columns // 64) * 64 * 4  # in blocks
    assert weights()["f"].nbytes <= have.nbytes - before <= padded
    session.close()


def test_large_weights_are_those_of_now(beside: bool, tmp_path: Path) -> None:
    path, given = net(tmp_path / "net.onnx", beside, weights()), weights()
    before = kept(path, X, tmp_path)
    assert is_taken(path, X, tmp_path)
    for name in ("k", "w", "t"):
        given[name] = weights(1)[name]
        net(path, beside, given)
        assert is_taken(path, X, tmp_path)
    assert not np.array_equal(run(path, X, tmp_path)[1], before)


@pytest.mark.parametrize(
    "body",
    [
        "a = Transpose<perm = [2, 0, 1]>(w) b = Transpose<perm = [1, 2, 0]>(a)",
        "a = Transpose(w) b = Transpose<perm = [0, 2, 1]>(a)",
        "a = Transpose<perm = [0, 1, 2]>(w) b = Transpose<perm = [0, 2, 1]>(a)",
        "a = Transpose(w) c = Reshape(a, sizes) b = Transpose<perm = [1, 0, 2]>(c)",
        "c = Reshape(w, sizes) a = Transpose<perm = [2, 0, 1]>(c) b = Identity(a)",
        "a = Transpose(w) c = Slice(a, at, end) b = Concat<axis = 0>(c, c)",
        "a = Transpose(w) c = Gather<axis = 0>(a, at) d = Gather<axis = 0>(a, end) b = Add(c, d)",
    ],
)
def test_what_is_turned_has_the_values_of_now(beside: bool, body: str, tmp_path: Path) -> None:
    path, feeds = tmp_path / "net.onnx", {"x": f32(3, 1)}
    body += " s = ReduceSum(b, all) y = Mul(x, s)"
    text = f"net (float[n, 1] x) => (float[i, j, k] y) {{ {body} }}"

    def write(seed: int) -> None:
        given = {"w": f32(48, 32, 16, seed=seed), "sizes": np.array([24, 16, 64])}
        given |= {"at": np.array([0]), "end": np.array([2]), "all": np.array([1, 2])}
        proto = model(text, 17, **given)
        location = f"net.{seed}"
        onnx.save(
            proto, path, save_as_external_data=beside, location=location, size_threshold=1 << 10
        )

    def expected() -> Array:
        session = onnxruntime.InferenceSession(path)
        return np.asarray(session.run(None, feeds)[0])

    write(0)
    before = kept(path, feeds, tmp_path)
    for seed in (0, 1):
        write(seed)
        found = run(path, feeds, tmp_path)[1]
        np.testing.assert_allclose(found, expected(), rtol=1e-4, atol=1e-4)
    assert not np.allclose(found, before)


def test_what_was_folded_is_part_of_the_model(beside: bool, tmp_path: Path) -> None:
    path, given = net(tmp_path / "net.onnx", beside, weights()), weights()
    kept(path, X, tmp_path)
    net(path, beside, {**given, "f": weights(1)["f"]})
    assert not is_taken(path, X, tmp_path)
    net(path, beside, given)
    run(path, X, tmp_path)
    assert is_taken(path, X, tmp_path)


def test_small_arrays_are_part_of_the_model(beside: bool, tmp_path: Path) -> None:
    path, given = net(tmp_path / "net.onnx", beside, weights()), weights()
    kept(path, X, tmp_path)
    net(path, beside, {**given, "at0": given["at1"]})
    assert not is_taken(path, X, tmp_path)


def test_other_sizes_options_and_installations_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = net(tmp_path / "net.onnx", False, weights())
    kept(path, X, tmp_path)
    assert not is_taken(path, {"x": f32(2, 64, 6, 8)}, tmp_path)
    assert not is_taken(path, X, tmp_path, libraries=["onednn", "numpy"])
    assert not is_taken(path, X, tmp_path, tolerance=0.5)
    assert is_taken(path, X, tmp_path)
    state = installed.state()
    monkeypatch.setattr(surface, "installed", lambda: [*state, "onnx-0.dist-info"])
    assert not is_taken(path, X, tmp_path)


def test_a_value_that_decides_sizes_is_part_of_the_choice(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    body = "c = Conv<pads = [1, 1, 1, 1]>(x, k) y = Reshape(c, sizes)"
    text = f"net (float[n, 64, 8, 8] x, int64[r] sizes) => (float[a, b] y) {{ {body} }}"
    onnx.save(model(text, 17, k=weights()["k"]), path)
    feeds = {"x": f32(2, 64, 8, 8), "sizes": np.array([2, -1])}
    kept(path, feeds, tmp_path)
    session, found = run(path, feeds, tmp_path)
    assert isinstance(session.plan, KeptPlan)
    assert found.shape == (2, 4096)
    other = {**feeds, "sizes": np.array([4, -1])}
    assert not is_taken(path, other, tmp_path)
    assert session.run(None, other)[0].shape == (4, 2048)
    np.testing.assert_array_equal(session.run(None, feeds)[0], found)


def test_who_wants_no_reference_is_told_so_at_once(tmp_path: Path) -> None:
    """What is known of a model says nothing to a session without ONNX's own evaluator."""
    path = tmp_path / "net.onnx"
    body = "f = Compress(t, often) b = Cast<to = 1>(f) y = Add(x, b)"
    text = f"net (float[n, 2] x) => (float[n, 2] y) {{ {body} }}"
    given = {"t": f32(3), "often": np.array([True, False, True])}
    onnx.save(model(text, 17, **given), path)
    feeds = {"x": f32(2, 2)}
    kept(path, feeds, tmp_path)
    assert is_taken(path, feeds, tmp_path)
    assert not is_taken(path, feeds, tmp_path, reference=False)


def test_damage_is_made_anew(tmp_path: Path) -> None:
    path = net(tmp_path / "net.onnx", False, weights())
    wanted = kept(path, X, tmp_path)
    [place] = (tmp_path / FOLDER).glob("surface-*")
    whole = place.read_bytes()
    for at in range(0, len(whole), 64):
        for damaged in (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], whole[:at]):
            place.write_bytes(damaged)
            session, found = run(path, X, tmp_path)
            assert not isinstance(session.plan, KeptPlan)
            np.testing.assert_array_equal(found, wanted)
            assert place.read_bytes() == whole


def dequantized(path: Path, kind: int, seed: int) -> Path:
    """Write a model whose weights are of a type that NumPy does not have."""
    random, bits = np.random.default_rng(seed), 4 if kind == TensorProto.INT4 else 8
    raw = random.integers(0, 0x70, 512 * 512 * bits // 8, dtype=np.uint8).tobytes()
    w = TensorProto(name="w", data_type=kind, dims=(512, 512), raw_data=raw)
    nodes = [make_node("DequantizeLinear", ["w", "s"], ["v"]), make_node("MatMul", "xv", "y")]
    x, y = (make_tensor_value_info(name, TensorProto.FLOAT, ["n", 512]) for name in "xy")
    scale = numpy_helper.from_array(np.array(0.01, np.float32), "s")
    graph = make_graph(nodes, "g", [x], [y], [w, scale])
    onnx.save(make_model(graph, opset_imports=[make_opsetid("", 21)], ir_version=10), path)
    return path


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.FLOAT8E4M3FN])
def test_weights_that_are_read_at_once_are_part_of_the_model(kind: int, tmp_path: Path) -> None:
    path, feeds = dequantized(tmp_path / "net.onnx", kind, 0), {"x": f32(8, 512)}
    kept(path, feeds, tmp_path)
    assert is_taken(path, feeds, tmp_path)
    assert not is_taken(dequantized(path, kind, 1), feeds, tmp_path)


def test_names_of_values_while_the_model_is_read(tmp_path: Path) -> None:
    """Beside runs and by who asks, at the same time; both may have operators to import."""
    path = net(tmp_path / "net.onnx", False, weights())
    kept(path, X, tmp_path)
    code = f"""if True:
        import numpy as np
        from vtensor import Session
        session = Session({str(path)!r}, threads=1, cache_dir={str(tmp_path)!r})
        for _ in range(2):
            session.run(None, {{"x": np.ones((2, 64, 8, 8), np.float32)}})
        print(type(session.plan).__name__, "turned" in session.values)
        session.close()
    """
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True
    )
    assert run.stdout.split() == ["KeptPlan", "True"]


def test_a_file_of_weights_that_another_takes_the_place_of(tmp_path: Path) -> None:
    """What was not read yet of the file that was there is refused, not taken from another."""
    body = "m = MatMul(x, w) t = Tile(m, r) y = Add(t, b)"
    text = f"net (float[n, 64] x) => (float[n, 4096] y) {{ {body} }}"
    paths = [tmp_path / name / "net.onnx" for name in "ab"]
    for seed, path in enumerate(paths):
        path.parent.mkdir()
        given = {"w": f32(64, 512, seed=seed), "b": f32(4096, seed=seed), "r": np.array([1, 8])}
        proto = model(text, 17, **given)
        onnx.save(proto, path, save_as_external_data=True, location="data", size_threshold=1 << 10)
    kept(paths[0], {"x": f32(8, 64)}, tmp_path)
    session, _ = run(paths[0], {"x": f32(8, 64)}, tmp_path)
    assert isinstance(session.plan, KeptPlan)
    paths[1].with_name("data").replace(paths[0].with_name("data"))
    with pytest.raises(VTensorError, match="was changed"):
        session.run(None, {"x": f32(5, 64)})


def test_what_is_looked_at_again_takes_no_budget(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    text = (
        "net (float[n, 2048] x) => (float[n, 2048] y) { t = Gather<axis = 0>(w, i) y = Add(x, t) }"
    )
    proto = model(text, 17, w=f32(1024, 2048), i=np.array([3]))
    onnx.save(proto, path, save_as_external_data=True, location="data", size_threshold=1 << 10)
    for _ in range(3):
        run(path, {"x": f32(2, 2048)}, tmp_path, max_bytes=12_000_000)


def test_a_model_that_changes_while_it_is_used(tmp_path: Path) -> None:
    """What was not read yet of the file that was opened is refused, not taken from another."""
    path = net(tmp_path / "net.onnx", False, weights())
    kept(path, X, tmp_path)
    session, found = run(path, X, tmp_path)
    assert isinstance(session.plan, KeptPlan)
    with path.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\0")
    np.testing.assert_array_equal(session.run(None, X)[0], found)
    with pytest.raises(VTensorError, match="was changed since it was opened"):
        session.run(None, {"x": f32(3, 64, 8, 8)})
