"""Lock files: plans that are written down, run again as they were, and compared."""

from __future__ import annotations

import copy
import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner, Result

from libdesc.registry import ready
from libdesc.transforms import LayoutChange
from ops import Add, Conv2D, Relu
from resolver.lowered import OpNode
from tests.runtime.opened import NETWORKS
from vtensor import Graph, Session, save_onnx
from vtensor.cli import app
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
    """x -> conv1 -> relu -> conv2 -> + x."""
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
    """A seeded input."""
    return np.random.default_rng(2).standard_normal((1, 8, side, side)).astype(np.float32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A lock of the network, without fusion and with a Transform at its end."""
    path = tmp_path / "plan.toml"
    with Session(network(), optimize="lho", output_layouts={"y": "NHWC"}, threads=1) as session:
        session.lock().write(path)
    return path


def changed(file: Path, *pairs: tuple[str, str]) -> Path:
    """The file with some text replaced; each is there."""
    text = file.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    return file


def refused(file: Path, graph: Graph | None = None, **options: Any) -> str:
    """What a session says of a lock file that it does not take."""
    with pytest.raises(LockError) as caught:
        Session(graph or network(), plan=file, threads=1, **options)
    return str(caught.value)


@pytest.mark.parametrize("level", ["none", "lho", "ewo", "all"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_plan_is_run_again_as_it_was(name: str, level: str, tmp_path: Path) -> None:
    """The same variants, Transforms and kernels, in order; the same values, bit for bit."""
    net = NETWORKS[name]()
    feeds = net.feeds(*next(net.sizes(1, 1)))
    file = tmp_path / "plan.toml"
    with Session(net.proto, optimize=level, threads=2) as session:
        answers = session.run(None, feeds)
        session.lock().write(file)
        with Session(net.proto, plan=file, threads=2) as again:
            for one, other in zip(answers, again.run(None, feeds), strict=True):
                assert one.tobytes() == other.tobytes()
            assert again.plan.kernels() == session.plan.kernels()
            assert again.lock().text() == file.read_text()  # variants and Transforms, in order
    assert "transform:" not in file.read_text()  # counted names would all change with one more


@pytest.fixture
def fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What was measured: what comes later takes less, so that inexact kernels are the fastest; and
    a plan that was tuned is taken.
    """
    asked: Counter[str] = Counter()

    def node_ns(node: OpNode, values: Mapping[str, VTensor], *_: object) -> int:
        asked[" ".join(signature(node, values))] += 1
        return 10_000 - len(asked)  # so that what a library would not choose is faster

    def transform_ns(value: VTensor, change: LayoutChange, *_: object) -> int:
        return 10

    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuning, "node_ns", node_ns)
    monkeypatch.setattr(tuning, "transform_ns", transform_ns)
    monkeypatch.setattr(tuned, "fastest", lambda plans, _: (plans[0], [0, 0]))
    return asked


@pytest.mark.parametrize("tolerance", [0.0, 1e-5])
def test_a_tuned_plan_is_run_again_as_it_was(
    tmp_path: Path, fast: Counter[str], tolerance: float
) -> None:
    file = tmp_path / "plan.toml"
    with Session(network(), tune=True, tolerance=tolerance, threads=1) as session:
        session.lock().write(file)
        assert session.plan.graph.inexact == bool(tolerance)
        steps = [(step.ns, step.tuned, step.kernels, step.error) for step in session.plan.steps]
        assert any(tuned for _, tuned, _, _ in steps)
        count = len(fast)
        with Session(network(), plan=file, tolerance=tolerance, threads=1) as again:
            found = [(one.ns, one.tuned, one.kernels, one.error) for one in again.plan.steps]
            assert found == steps
            [x], [y] = (s.run(None, {"x": image()}) for s in (session, again))
            assert x.tobytes() == y.tobytes()
            assert again.lock().text() == file.read_text()
    assert len(fast) == count  # nothing is measured again
    options = tomllib.loads(file.read_text())["options"]
    assert (options["tune"], options["tolerance"]) == (True, tolerance)


@pytest.fixture
def inexact(tmp_path: Path, fast: Counter[str]) -> Path:
    """A lock of the network with inexact kernels."""
    path = tmp_path / "inexact.toml"
    with Session(network(), tune=True, tolerance=1e-4, threads=1) as session:
        session.lock().write(path)
    return path


def test_a_plan_that_is_off_by_more_than_is_allowed(inexact: Path) -> None:
    proof = Lock.read(inexact).proof
    assert proof is not None
    assert proof.measured is not None
    off = max(proof.measured, proof.expected)
    for tolerance in (0, off / 2):
        text = refused(inexact, tolerance=tolerance)
        assert f"its results are off by {off:.1e}, the tolerance is {tolerance:g}\n" in text
        assert "to fix: Session(..., tolerance=0.0001), for which it was made" in text
    Session(network(), plan=inexact, tolerance=off, threads=1).close()


def test_errors_that_were_not_measured_so(inexact: Path) -> None:
    """The independent check goes over what a file says as over any plan."""
    data = tomllib.loads(inexact.read_text())
    first = data["errors"]["nodes"][0]
    edits: list[tuple[list[Any], object, str]] = [
        (["nodes"], data["errors"]["nodes"][1:], "charged"),
        (["nodes", 0, "gain"], first["gain"] / 2, "its gain is said to be"),
        (["nodes", 0, "trials"], [], "its error was not measured"),
        (["nodes", 0, "kernel"], "other", "another variant was charged"),
        (["budget"], 0.0, "errors add up to"),
        (["measured"], 9e-5, ""),
    ]
    for path, value, wanted in edits:
        bad = copy.deepcopy(data)
        at = bad["errors"]
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        inexact.write_text("\n".join(toml_lines(bad)))
        if wanted:
            assert wanted in refused(inexact, tolerance=1e-4)
        else:
            Session(network(), plan=inexact, tolerance=1e-4, threads=1).close()
    del data["errors"]
    inexact.write_text("\n".join(toml_lines(data)))
    assert "inexact, but without a share of the error" in refused(inexact, tolerance=1e-4)


@pytest.mark.parametrize("wrong", ["x", [], [[1]], [[1, "x"]], -1.5, float("nan"), True])
def test_any_error_may_be_wrong(inexact: Path, wrong: object) -> None:
    """A typed error that names a key, or a lock."""
    data = tomllib.loads(inexact.read_text())
    failed = 0
    for path in places(data):
        if path[0] != "errors" and path != ("options", "tolerance"):
            continue
        bad = copy.deepcopy(data)
        at = bad
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = wrong
        try:
            Lock.parse(bad, "", "bad.toml").text()
        except LockError:
            failed += 1
    assert failed


def test_where_numbers_are_not_finite_a_strict_plan_answers(inexact: Path) -> None:
    x = image()
    x[0, 3, 2, 2] = np.inf
    with (
        Session(network(), tolerance=0, threads=1) as strict,
        Session(network(), plan=inexact, tolerance=1e-4, threads=1) as session,
    ):
        [one], [other] = strict.run(None, {"x": x}), session.run(None, {"x": x})
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
        session.run(None, {"x": image()})
        assert session.plan.graph.inexact


def test_diff_plans_at_the_tolerance_of_the_file(inexact: Path, tmp_path: Path) -> None:
    model, strict = tmp_path / "residual.onnx", tmp_path / "strict.toml"
    save_onnx(network(), model)
    given = ("lock", model, "--tune", "--threads", 1, "-o")
    assert vtensor(*given, inexact, "--tolerance", "1e-4").exit_code == 0
    assert vtensor(*given, strict, "--tolerance", "0").exit_code == 0
    assert Lock.read(inexact).proof is not None
    assert Lock.read(strict).proof is None
    for file in (inexact, strict):
        assert vtensor("diff", file, model, "--no-costs").exit_code == 0
    ran = vtensor("diff", strict, inexact, "--no-costs", "--json")
    rows = json.loads(ran.stdout)["differences"]
    assert {"tolerance", "kernel", "error"} <= {row["field"] for row in rows}


def test_equal_runs_write_equal_files(file: Path, tmp_path: Path) -> None:
    with Session(network(), optimize="lho", output_layouts={"y": "NHWC"}, threads=1) as session:
        assert session.lock().text() == file.read_text()


def test_a_choice_that_is_edited_binds(file: Path) -> None:
    data = tomllib.loads(file.read_text())
    [row] = (one for one in data["node"] if one["name"] == "conv1.relu")
    assert row["library"] != "numpy"
    block = '[[node]]\nname = "conv1.relu"\noperator = "Relu"\nlibrary = '
    changed(file, (f'{block}"{row["library"]}"', f'{block}"numpy"'))
    with Session(network(), plan=file, threads=1) as session:
        libraries = {step.node.name: step.library for step in session.plan.steps}
        assert libraries["conv1.relu"] == "numpy"
        with Session(network(), output_layouts={"y": "NHWC"}) as other:
            np.testing.assert_allclose(
                session.run(None, {"x": image()})[0],
                other.run(None, {"x": image()})[0],
                rtol=1e-4,
                atol=1e-4,
            )


def test_lines_that_no_longer_hold_are_all_listed(file: Path) -> None:
    """A node that is gone, and behind it a library that is not there."""
    data = tomllib.loads(file.read_text())
    [row] = (one for one in data["node"] if one["name"] == "sum")
    block = f'[[node]]\nname = "sum"\noperator = "Add"\nlibrary = "{row["library"]}"'
    relu, gone = ('name = "conv1.relu"', 'name = "conv1.rely"')
    changed(file, (relu, gone), (block, block.replace(row["library"], "mkl")))
    text = refused(file)
    lines = file.read_text().splitlines()
    for name, why in {
        "conv1.rely": "no such node; did you mean 'conv1.relu'?",
        "sum": "library mkl is not registered",
    }.items():
        line = lines.index(f'name = "{name}"')  # one less than its number; the table begins there
        assert f"{file}:{line}: node {name!r}: {why}" in text
    assert "to fix: write it again with `vtensor lock`" in text


def test_a_library_that_is_absent_or_declines(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {row["library"] for row in tomllib.loads(file.read_text())["node"]}
    name = sorted(own)[-1]
    gone = replace(ready().libraries[name], absent="its file was not found")
    monkeypatch.setitem(ready().libraries, name, gone)
    text = refused(file)
    assert f"library {name} cannot be used here: its file was not found" in text
    count = sum(row["library"] == name for row in tomllib.loads(file.read_text())["node"])
    assert text.count("cannot be used here") == count


def test_layouts_that_do_not_hold(file: Path) -> None:
    old = '{ role = "w", value = "conv1.w in '
    text = file.read_text()
    begin = text.index(old)
    layout = text[begin:].split('layout = "')[1].split('"')[0]
    end = text.index("}", begin)
    row = text[begin:end]
    for other, why in (
        ("NHWC", "layout NHWC does not hold f32 O=8 I=8 h=3 w=3"),
        ("wIhO", f"is in {layout}, and it takes wIhO"),
        ("gpu:OIhw", "is on cpu, not on gpu"),
    ):
        file.write_text(
            text.replace(row, row.replace(f'layout = "{layout}"', f'layout = "{other}"'))
        )
        assert why in refused(file)


def test_another_model(file: Path) -> None:
    assert "is the plan of another model, 'residual': nodes, parameters or constants" in refused(
        file, network(scale=2)
    )
    other = Graph("other")
    other.output(other.add(Relu(), other.input("z", {"N": 1})), "y")
    assert "is the plan of another model, 'residual': it has other inputs" in refused(file, other)


def test_other_sizes(file: Path) -> None:
    text = refused(file, network(side=8))
    assert "input 'x' is f32 N=1 C=8 H=8 W=8; the lock file has f32 N=1 C=8 H=6 W=6" in text


def test_runs_that_are_not_written_down(file: Path) -> None:
    with Session(network(), plan=file, threads=1) as session:
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
def test_what_the_plan_says_is_not_given_beside_it(file: Path, option: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(option))}: plan= fixes this already"):
        Session(network(), plan=file, **option)


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
def test_what_a_file_may_not_say(file: Path, old: str, new: str, wanted: str) -> None:
    changed(file, (old, new))
    with pytest.raises(LockError, match=wanted):
        Session(network(), plan=file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refused(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    assert "cannot be read: " in refused(tmp_path / "bytes.toml")
    with Session(network()) as session, pytest.raises(InputError, match="cannot be written"):
        session.lock().write(tmp_path / "no" / "folder.toml")


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where values stand in parsed TOML."""
    if path:
        yield path
    rows = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    for key, value in rows:
        yield from places(value, (*path, key))


@pytest.mark.parametrize("wrong", [7, "x", [], [[1]], {}, {"y": []}, -1.5, True])
def test_any_value_may_be_wrong(file: Path, wrong: object) -> None:
    """Each place of a file once: a typed error that names a key, or a plan that is sound."""
    data = tomllib.loads(file.read_text())
    with Session(network(), plan=file, threads=1) as session:
        [right] = session.run(None, {"x": image()})
    for path in places(data):
        if "certificate" in path or "costs" in path or "declined" in path:
            continue  # these decide nothing
        bad = copy.deepcopy(data)
        at = bad
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = wrong
        try:
            lock = Lock.parse(bad, "", "bad.toml")
            file.write_text(lock.text())
            with Session(network(), plan=file, threads=1) as session:
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


def vtensor(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose sizes are open."""
    path = tmp_path / "mobile.onnx"
    onnx.save(NETWORKS["mobile"]().proto, str(path))
    return path


SIZES = ("--shape", "x=2,3,9,9")


def test_lock_and_diff_on_the_command_line(model: Path, tmp_path: Path) -> None:
    a, b = tmp_path / "a.toml", tmp_path / "b.toml"
    ran = vtensor("lock", model, *SIZES, "-o", a)
    assert ran.exit_code == 0, ran.output
    moved = len(json.loads(vtensor("explain", model, *SIZES, "--json").stdout)["transforms"])
    assert ran.stdout == f"{a}: 7 nodes, {counted(moved, 'Transform')} a run\n"
    pinned = ("--pin", "GlobalAveragePool:9=numpy")
    data = json.loads(vtensor("lock", model, *SIZES, "-o", b, *pinned, "--json").stdout)
    assert data["nodes"] == 7
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


def test_what_cannot_be_compared_is_no_difference(model: Path, tmp_path: Path) -> None:
    for pair in ((model, model), (tmp_path / "none.toml", model)):
        ran = vtensor("diff", *pair)
        assert ran.exit_code == 2
        assert "Error: " in ran.stderr


def test_times_that_are_near_are_equal(file: Path) -> None:
    lock = Lock.read(file)
    name, cost = next((name, one) for name, one in lock.costs.items() if "ns" in one)
    for factor, count in ((1.05, 0), (1.5, 1)):
        row = {**cost, "ns": round(cost["ns"] * factor)}
        other = replace(lock, costs={**lock.costs, name: row})
        assert len(differences(lock, other)) == count
        assert differences(lock, other, costs=False) == []


def test_nodes_in_another_order_are_a_difference(file: Path) -> None:
    lock = Lock.read(file)
    first, second, *rest = lock.choices.rows
    choices = replace(lock.choices, rows=(second, first, *rest))
    [found] = differences(lock, replace(lock, choices=choices))
    assert (found.field, found.a, found.b) == ("order", first.name, second.name)
