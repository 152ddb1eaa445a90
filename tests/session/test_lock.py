"""Lock files: plans that are saved, run again unchanged, and compared."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from libdesc.registry import ready
from ops import Add, Conv2D, Relu
from resolver.lowered import OpNode
from tests.libraries.command import data_of, vtensor
from tests.libraries.slow import slow_but
from tests.runtime.opened import NETWORKS
from vtensor import Graph, Session, save_onnx
from vtensor.errors import InputError, LockError
from vtensor.language.tensor import VTensor
from vtensor.language.wording import counted
from vtensor.runtime.lock.diff import differences
from vtensor.runtime.lock.lock_file import Lock
from vtensor.runtime.lock.toml import toml_lines
from vtensor.runtime.planning import tuned
from vtensor.runtime.tuning import tuner as tuning
from vtensor.runtime.tuning.measure import signature

Array = np.ndarray[Any, Any]


def network(scale: float = 1.0, side: int = 6) -> Graph:
    """Return x -> conv1 -> relu -> conv2 -> + x."""
    g = Graph("residual")
    x = value = g.input("x", {"N": 1, "C": 8, "H": side, "W": side})
    rng = np.random.default_rng(1)
    for name in ("conv1", "conv2"):
        weights = (scale * rng.standard_normal((8, 8, 3, 3))).astype(np.float32)
        w = g.constant(weights, "O I h w", f"{name}.w")
        value = g.add(Conv2D(pads=(1, 1, 1, 1)), value, w, name=name)
        value = g.add(Relu(), value, name=f"{name}.relu") if name == "conv1" else value
    g.output(g.add(Add(), value, x, name="sum"), "y")
    return g.seal()


def image(side: int = 6) -> Array:
    """Return a seeded input."""
    return np.random.default_rng(2).standard_normal((1, 8, side, side)).astype(np.float32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Write a lock of the network, without fusion and with a Transform at its end."""
    path = tmp_path / "plan.toml"
    with Session(network(), optimize="lho", output_layouts={"y": "NHWC"}, threads=1) as session:
        session.lock().write(path)
    return path


def locked(file: Path, graph: Graph | None = None, **options: Any) -> Session:
    """Return a session whose plan is that of a file."""
    return Session(graph or network(), plan=file, threads=1, **options)


def changed(file: Path, *pairs: tuple[str, str]) -> Path:
    """Replace some text of a file, which it has."""
    text = file.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    return file


def refused(file: Path, graph: Graph | None = None, **options: Any) -> str:
    """Return the message with which a session refuses a lock file."""
    with pytest.raises(LockError) as caught:
        locked(file, graph, **options)
    return str(caught.value)


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values in parsed TOML."""
    if path:
        yield path
    items: Any = enumerate(data) if isinstance(data, list) else getattr(data, "items", tuple)()
    for key, value in items:
        yield from places(value, (*path, key))


def with_value(data: Any, path: tuple[Any, ...], value: object) -> Any:
    """Return a copy of parsed TOML with another value in a place."""
    changed = at = copy.deepcopy(data)
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return changed


@pytest.mark.parametrize("level", slow_but(["none", "all"], ["none", "lho", "ewo", "all"]))
@pytest.mark.parametrize("name", NETWORKS)
def test_locked_plan_runs_unchanged(name: str, level: str, tmp_path: Path) -> None:
    """The same variants, Transforms and kernels, in order; the same values, bit for bit."""
    net = NETWORKS[name]()
    feeds = net.feeds(*next(net.sizes(1, 1)))
    file = tmp_path / "plan.toml"
    with Session(net.proto, optimize=level, threads=2) as session:
        answers = session.run(None, feeds)
        session.lock().write(file)
        with Session(net.proto, plan=file, threads=2) as again:
            repeated = again.run(None, feeds)
            assert [y.tobytes() for y in answers] == [y.tobytes() for y in repeated]
            assert again.plan.kernels() == session.plan.kernels()
            assert again.lock().text() == file.read_text()
    assert "transform:" not in file.read_text()  # counted names would all change with one more


@pytest.fixture
def fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what is measured: what comes later is faster, so approximate kernels are the fastest;
    a tuned plan is taken.
    """
    asked: Counter[str] = Counter()

    def node_ns(node: OpNode, values: Mapping[str, VTensor], *_: object) -> int:
        asked[" ".join(signature(node, values))] += 1
        return 10_000 - len(asked)

    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuning, "node_ns", node_ns)
    monkeypatch.setattr(tuning, "transform_ns", lambda *_: 10)
    monkeypatch.setattr(tuned, "fastest", lambda plans, _: (plans[0], [0, 0]))
    return asked


@pytest.mark.parametrize("tolerance", [0.0, 1e-5])
def test_tuned_plan_runs_unchanged(tmp_path: Path, fast: Counter[str], tolerance: float) -> None:
    file = tmp_path / "plan.toml"
    with Session(network(), tune=True, tolerance=tolerance, threads=1) as session:
        session.lock().write(file)
        assert session.plan.graph.inexact == bool(tolerance)
        count = len(fast)
        with locked(file, tolerance=tolerance) as again:
            steps, repeated = (
                [(step.ns, step.tuned, step.kernels, step.error) for step in plan.steps]
                for plan in (session.plan, again.plan)
            )
            assert any(tuned for _, tuned, _, _ in steps)
            assert repeated == steps
            [x], [y] = (s.run(None, {"x": image()}) for s in (session, again))
            assert x.tobytes() == y.tobytes()
            assert again.lock().text() == file.read_text()
    assert len(fast) == count  # nothing is measured again
    options = tomllib.loads(file.read_text())["options"]
    assert (options["tune"], options["tolerance"]) == (True, tolerance)


@pytest.fixture
def inexact(tmp_path: Path, fast: Counter[str]) -> Path:
    """Write a lock of the network with approximate kernels."""
    path = tmp_path / "inexact.toml"
    with Session(network(), tune=True, tolerance=1e-4, threads=1) as session:
        session.lock().write(path)
    return path


def test_plan_is_refused_when_its_error_is_above_the_tolerance(inexact: Path) -> None:
    proof = Lock.read(inexact).proof
    assert proof is not None
    assert proof.measured is not None
    error = max(proof.measured, proof.expected)
    for tolerance in (0, error / 2):
        text = refused(inexact, tolerance=tolerance)
        assert f"its results are off by {error:.1e}, the tolerance is {tolerance:g}\n" in text
        assert "to fix: Session(..., tolerance=0.0001), for which it was made" in text
    locked(inexact, tolerance=error).close()


def test_wrong_errors_of_a_file_are_refused(inexact: Path) -> None:
    """The independent check goes over the numbers of a file as over those of any plan."""
    data = tomllib.loads(inexact.read_text())
    first, *others = data["errors"]["nodes"]
    edits: list[tuple[tuple[Any, ...], object, str]] = [
        (("nodes",), others, "inexact nodes and error shares differ"),
        (("nodes", 0, "gain"), first["gain"] / 2, "its gain is said to be"),
        (("nodes", 0, "trials"), [], "its error was not measured"),
        (("nodes", 0, "kernel"), "other", "another variant was charged"),
        (("budget",), 0.0, "errors add up to"),
    ]
    for path, value, wanted in edits:
        inexact.write_text("\n".join(toml_lines(with_value(data, ("errors", *path), value))))
        assert wanted in refused(inexact, tolerance=1e-4)
    inexact.write_text("\n".join(toml_lines(with_value(data, ("errors", "measured"), 9e-5))))
    locked(inexact, tolerance=1e-4).close()
    del data["errors"]
    inexact.write_text("\n".join(toml_lines(data)))
    assert "inexact, but without a share of the error" in refused(inexact, tolerance=1e-4)


def test_any_error_may_be_wrong(inexact: Path) -> None:
    """A lock is read, or there is a typed error."""
    data, failed = tomllib.loads(inexact.read_text()), Counter[str]()
    wrong: tuple[object, ...] = ("x", [], [[1]], [[1, "x"]], -1.5, float("nan"), True)
    errors = [path for path in places(data) if path[0] == "errors"]
    for path, value in product([*errors, ("options", "tolerance")], wrong):
        try:
            Lock.parse(with_value(data, path, value), "", "bad.toml").text()
        except LockError:
            failed[repr(value)] += 1
    assert len(failed) == len(wrong)


def test_strict_plan_answers_when_numbers_are_not_finite(inexact: Path) -> None:
    x = image()
    x[0, 3, 2, 2] = np.inf
    with (
        Session(network(), tolerance=0, threads=1) as strict,
        locked(inexact, tolerance=1e-4) as session,
    ):
        [expected], [y] = strict.run(None, {"x": x}), session.run(None, {"x": x})
        np.testing.assert_allclose(expected, y, rtol=1e-4, atol=1e-4)
        session.run(None, {"x": image()})
        assert session.plan.graph.inexact


def test_diff_plans_at_the_tolerance_of_the_file(inexact: Path, tmp_path: Path) -> None:
    model, strict = tmp_path / "residual.onnx", tmp_path / "strict.toml"
    save_onnx(network(), model)
    for file, tolerance in ((inexact, "1e-4"), (strict, "0")):
        options = ("--tune", "--threads", 1, "-o", file, "--tolerance", tolerance)
        assert vtensor("lock", model, *options).exit_code == 0
        assert (Lock.read(file).proof is None) == (file == strict)
        assert vtensor("diff", file, model, "--no-costs").exit_code == 0
    ran = vtensor("diff", strict, inexact, "--no-costs", "--json")
    rows = json.loads(ran.stdout)["differences"]
    assert {"tolerance", "kernel", "error"} <= {row["field"] for row in rows}


def test_edited_choice_binds_and_an_equal_run_writes_an_equal_file(file: Path) -> None:
    with Session(network(), optimize="lho", output_layouts={"y": "NHWC"}, threads=1) as session:
        assert session.lock().text() == file.read_text()
        [expected] = session.run(None, {"x": image()})
    [row] = (row for row in tomllib.loads(file.read_text())["node"] if row["name"] == "conv1.relu")
    assert row["library"] != "numpy"
    block = '[[node]]\nname = "conv1.relu"\noperator = "Relu"\nlibrary = '
    changed(file, (f'{block}"{row["library"]}"', f'{block}"numpy"'))
    with locked(file) as session:
        libraries = {step.node.name: step.library for step in session.plan.steps}
        assert libraries["conv1.relu"] == "numpy"
        [y] = session.run(None, {"x": image()})
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def test_lines_that_no_longer_hold_are_all_listed(file: Path) -> None:
    """A node that is gone, and after it a library that is not there."""
    [row] = (row for row in tomllib.loads(file.read_text())["node"] if row["name"] == "sum")
    block = f'[[node]]\nname = "sum"\noperator = "Add"\nlibrary = "{row["library"]}"'
    relu, gone = ('name = "conv1.relu"', 'name = "conv1.rely"')
    changed(file, (relu, gone), (block, block.replace(row["library"], "mkl")))
    text, lines = refused(file), file.read_text().splitlines()
    for name, why in {
        "conv1.rely": "no such node; did you mean 'conv1.relu'?",
        "sum": "library mkl is not registered",
    }.items():
        line = lines.index(f'name = "{name}"')  # one less than its number; the table begins there
        assert f"{file}:{line}: node {name!r}: {why}" in text
    assert "to fix: write it again with `vtensor lock`" in text


def test_absent_library_is_named_at_each_node(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = [row["library"] for row in tomllib.loads(file.read_text())["node"]]
    name = max(libraries)
    gone = replace(ready().libraries[name], absent="its file was not found")
    monkeypatch.setitem(ready().libraries, name, gone)
    text = refused(file)
    assert f"library {name} cannot be used here: its file was not found" in text
    assert text.count("cannot be used here") == libraries.count(name)


def test_wrong_layouts_are_refused(file: Path) -> None:
    text = file.read_text()
    _, head, rest = text.partition('{ role = "w", value = "conv1.w in ')
    row = head + rest.partition("}")[0]
    layout = row.split('layout = "')[1].split('"')[0]
    for other, why in (
        ("NHWC", "layout NHWC does not hold f32 O=8 I=8 h=3 w=3"),
        ("wIhO", f"is in {layout}, and it takes wIhO"),
        ("gpu:OIhw", "is on cpu, not on gpu"),
    ):
        wrong = row.replace(f'layout = "{layout}"', f'layout = "{other}"')
        file.write_text(text.replace(row, wrong))
        assert why in refused(file)


def test_plan_of_another_model_is_refused(file: Path) -> None:
    g = Graph("other")
    g.output(g.add(Relu(), g.input("z", {"N": 1})), "y")
    another = "is the plan of another model, 'residual': "
    for graph, why in (
        (network(scale=2), f"{another}nodes, parameters or constants"),
        (g, f"{another}it has other inputs"),
        (
            network(side=8),
            "input 'x' is f32 N=1 C=8 H=8 W=8; the lock file has f32 N=1 C=8 H=6 W=6",
        ),
    ):
        assert why in refused(file, graph)


def test_other_runs_than_the_locked_one_are_refused(file: Path) -> None:
    with locked(file) as session:
        with pytest.raises(LockError, match="input 'x' has layout NHWC; the lock file has NCHW"):
            session.run(None, {"x": image().transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)})
        with pytest.raises(LockError, match="conv1 is wanted, which is no output"):
            session.run(["conv1"], {"x": image()})
        session.run(None, {"x": image()})
    with Session(network()) as session:
        session.run(["conv1"], {"x": image()})
        with pytest.raises(InputError, match="the last run asked for conv1: run outputs alone"):
            session.lock()


@pytest.mark.parametrize(
    "option",
    [
        {"optimize": "lho"},
        {"tune": True},
        {"libraries": ["numpy"]},
        {"pin": {"Relu": "numpy"}},
        {"output_layouts": {"y": "NHWC"}},
    ],
)
def test_option_that_the_plan_fixes_is_refused(file: Path, option: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(option))}: plan= fixes this already"):
        locked(file, **option)


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("[options]", "[options", "is no TOML: .*line"),
        ("format = 1", "format = 2", "format: 2 is not what this VTensor reads, which is 1"),
        ("format = 1", "formal = 1", "formal: is no key; did you mean 'format'"),
        ('operator = "Relu"', "operator = 3", ":[0-9]+: node 'conv1.relu', operator: must be text"),
        ('layout = "NCHW" }', 'layout = "N//" }', "layout: "),
        ('optimize = ["lho"', 'optimize = ["best"', "options: optimize: no pass 'best'"),
        ("tune = false", 'tune = false\nlibraries = ["mkl"]', "options: libraries: mkl is not"),
    ],
)
def test_wrong_line_is_named(file: Path, old: str, new: str, wanted: str) -> None:
    assert re.search(wanted, refused(changed(file, (old, new))))


def test_file_that_cannot_be_read_or_written_is_an_error(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refused(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    assert "cannot be read: " in refused(tmp_path / "bytes.toml")
    with Session(network()) as session, pytest.raises(InputError, match="cannot be written"):
        session.lock().write(tmp_path / "no" / "folder.toml")


@pytest.mark.parametrize("wrong", [7, "x", [], [[1]], {}, {"y": []}, -1.5, True])
def test_any_value_may_be_wrong(file: Path, wrong: object) -> None:
    """Each place of a file once: a typed error that names a key, or a plan that is sound."""
    data = tomllib.loads(file.read_text())
    with locked(file) as session:
        [right] = session.run(None, {"x": image()})
    for path in places(data):
        if {"certificate", "costs", "declined"} & {*path}:
            continue  # these decide nothing
        try:
            file.write_text(Lock.parse(with_value(data, path, wrong), "", "bad.toml").text())
            with locked(file) as session:
                [y] = session.run(None, {"x": image()})
        except LockError:
            pass
        else:
            np.testing.assert_allclose(y, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["", "a b", 'q"\\', "new\nline\t\x00\x7f", "ü😀", "a.b", "-1"])
def test_names_of_any_kind_read_back(name: str) -> None:
    data = {
        name: name,
        f"{name}!": {name: [name, 1.5, -2, True]},
        "rows": [{name: [{name: 1}] * 2}],
    }
    assert tomllib.loads("\n".join(toml_lines(data))) == data


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Write a model whose sizes are open."""
    path = tmp_path / "mobile.onnx"
    onnx.save(NETWORKS["mobile"]().proto, str(path))
    return path


SIZES = ("--shape", "x=2,3,9,9")


def test_commands_lock_and_diff(model: Path, tmp_path: Path) -> None:
    a, b = tmp_path / "a.toml", tmp_path / "b.toml"
    ran = vtensor("lock", model, *SIZES, "-o", a)
    assert ran.exit_code == 0, ran.output
    moved = len(data_of("explain", model, *SIZES)["transforms"])
    assert ran.stdout == f"{a}: 7 nodes, {counted(moved, 'Transform')} a run\n"
    pinned = ("--pin", "GlobalAveragePool:9=numpy")
    assert data_of("lock", model, *SIZES, "-o", b, *pinned)["nodes"] == 7
    for same in (a, model):
        ran = vtensor("diff", a, same, "--no-costs")
        assert (ran.exit_code, ran.stdout) == (0, f"{a} and {same} agree\n")
    ran = vtensor("diff", a, b, "--json")
    assert ran.exit_code == 1
    rows = json.loads(ran.stdout)["differences"]
    wanted = {"about": "node", "name": "GlobalAveragePool:9", "field": "library", "b": "numpy"}
    assert any(wanted.items() <= row.items() for row in rows)
    ran = vtensor("diff", a, b)
    assert ran.exit_code == 1
    assert "GlobalAveragePool:9" in ran.stdout
    assert f"{len(rows)} differences\n" in ran.stdout
    assert vtensor("diff", b, model, "--no-costs").exit_code == 0  # with the pins of the file
    for pair in ((model, model), (tmp_path / "none.toml", model)):  # cannot be compared
        ran = vtensor("diff", *pair)
        assert ran.exit_code == 2
        assert "Error: " in ran.stderr


def test_differences_are_in_times_far_apart_and_in_the_order_of_nodes(file: Path) -> None:
    lock = Lock.read(file)
    name, cost = next((name, cost) for name, cost in lock.costs.items() if "ns" in cost)
    for factor, count in ((1.05, 0), (1.5, 1)):
        row = {**cost, "ns": round(cost["ns"] * factor)}
        other = replace(lock, costs={**lock.costs, name: row})
        assert len(differences(lock, other)) == count
        assert differences(lock, other, costs=False) == []
    first, second, *rest = lock.choices.rows
    choices = replace(lock.choices, rows=(second, first, *rest))
    [difference] = differences(lock, replace(lock, choices=choices))
    assert (difference.field, difference.a, difference.b) == ("order", first.name, second.name)
