"""The experiments: rows that stay, turns and gains, verdicts, and the whole of it, quickly."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from eval import busy, memory, report, shapes, steps, today
from eval.__main__ import MINUTES, main
from eval.experiment import FULL, QUICK, Scope, Store
from eval.figures import claims, conversions, latency, peers, shares, turns, worth
from eval.figures.cell import Cell, measured
from eval.figures.cells import batch_groups, groups
from eval.figures.parted import Clocked, baseline, ours, parts
from eval.figures.parts import KEY as PARTS_KEY
from eval.figures.parts import off
from eval.figures.profiled import HEAVY
from eval.figures.profiled import row as profiled_row
from eval.figures.timing import Group, Model, gain, summary, table, timed
from eval.figures.timing import contender as contender_of
from eval.figures.turns import Remote, interval, machine_state, take_turns, undisturbed
from eval.kernels import forms_today, layers
from eval.layout_aware import Network
from eval.mixes import mixes
from eval.models_shipped import shipped
from eval.networks import NAMES, build
from eval.profiles import KINDS, shown
from eval.tests.benchmark.support import json_of
from tests.libraries.slow import ALL
from vtensor import Session
from vtensor.benchmark.agreement import BOUNDS
from vtensor.benchmark.messages import Loaded, Timed
from vtensor.benchmark.race import Contender
from vtensor.errors import UnsupportedOperatorError
from vtensor.language.operators import OPERATORS

KEY = ("network", "engine")


def times(*rounds: list[float]) -> dict[str, Any]:
    """Return the columns of a row that hold these rounds."""
    return {"rounds_s": [*rounds], **summary([*rounds], 0)}


def test_rows_stay_and_are_measured_once(tmp_path: Path) -> None:
    first, keys = Store(tmp_path, {"when": "1"}), [{"network": "a", "engine": n} for n in "xy"]
    rows = first.table("t", KEY)
    assert first.missing(rows, keys) == keys
    rows.add([{**keys[0], "runs": 2, "rounds_s": [[1.0], [2.0]]}])
    later = Store(tmp_path, {"when": "2"})
    again = later.table("t", KEY)
    assert later.missing(again, keys) == keys[1:]
    again.add([{**keys[1], "runs": 3, "rounds_s": [[1.0]]}])
    assert [row["run"] for row in again] == [0, 1]
    assert [run["when"] for run in Store(tmp_path).table("t", KEY).runs] == ["1", "2"]
    lines = (tmp_path / "t.csv").read_text().splitlines()
    assert lines == ["network,engine,runs,run", "a,x,2,0", "a,y,3,1"]
    renewed = Store(tmp_path, {"when": "3"}, again=True)
    assert renewed.missing(renewed.table("t", KEY), keys) == keys
    for machine in ({"processor": "another"}, {"libraries": {"onednn": "3.2.0 on avx2"}}):
        other = Store(tmp_path, {"when": "4", "machine": machine})
        assert other.missing(other.table("t", KEY), keys) == keys  # its times are not this one's
    measured = renewed.table("t", KEY)
    measured.add([{**key, "runs": 1, "rounds_s": [[1.0]]} for key in keys])
    assert [run["when"] for run in Store(tmp_path).table("t", KEY).runs] == ["3"]
    assert [row["run"] for row in measured] == [0, 0]
    assert not Store(tmp_path, until=float("inf")).late
    assert Store(tmp_path, until=0.0).late


def test_the_scopes() -> None:
    default = Scope(threads=2)
    engines = {(group.cap, group.mix): group.engines for group in groups(default)}
    assert engines["sse41", "elementwise"] == ("baseline", "ewo")
    assert engines["sse41", "tensorflow"] == ("baseline", "none", "ewo", "all")
    assert engines["max", "tensorflow"] == ("baseline", "ewo", "all")
    only = groups(Scope(threads=2, only=("vgg19", "sse41", "tensorflow")))
    assert [(one.network, one.cap, one.mix) for one in only] == [("vgg19", "sse41", "tensorflow")]
    assert {group.network for group in groups(default)} == set(NAMES)
    assert {group.batch for group in batch_groups(FULL)} == {2, 4, 8, 16, 32}
    assert (default.pairs, default.within, default.seconds) == (40, 0.02, 22.0)
    assert (FULL.pairs, FULL.within, FULL.seconds) == (40, 0.02, 300.0)
    assert len(groups(QUICK)) == 1


def test_gains() -> None:
    before, after = times([4.0, 4.0], [8.0]), times([3.0], [6.0, 6.0])
    share = gain(before, after)
    assert share is not None
    assert (share.median, share.low, share.high) == pytest.approx((0.25, 0.25, 0.25))
    assert share.mean == pytest.approx(1 - 5 / (16 / 3))
    assert (str(share), share.pairs) == ("25.0 (25.0 to 25.0) %", 2)
    wide = gain(before, times([3.0], [7.2]))
    assert str(wide) == "not shown (10.0 to 25.0) %"
    assert gain(before, {"runs": 0}) is None
    assert gain(None, after) is None


def test_an_engine_that_computes_something_else_is_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model("mobilenet_v1", 1, QUICK, tmp_path)
    wrong = [output + np.float32(0.01) for output in model.oracle().outputs]
    monkeypatch.setattr(model, "_oracle", Loaded(0.0, 0.0, wrong))
    group = Group("mobilenet_v1", 1, "max", "priority", ("session",))
    [row] = timed(group, QUICK, model, lambda _: None)
    assert (row["status"], row["runs"], row["rounds_s"]) == ("disagrees", 0, [])
    assert row["difference"] > row["bound"]


def test_a_closing_softmax_stretches_the_bound(tmp_path: Path) -> None:
    model, graph = Model("mobilenet_v1", 1, QUICK, tmp_path), build("mobilenet_v1", 1, size=32)
    assert model.bound == BOUNDS["f32"]
    [softmax] = [node for node in graph.nodes.values() if node.op_name == "Softmax"]
    with Session(graph, libraries=["numpy"], optimize="none") as session:
        [logits] = session.run([softmax.inputs[0]], model.feeds)
    model.oracle()
    assert model.bound == pytest.approx(max(1e-4, 2e-5 * np.abs(logits).max()))


def test_options_of_engines() -> None:
    group = Group("vgg19", 1, "max", "priority", ("session", "apart"))
    assert contender_of("onednn alone", group).options["mix"] == "onednn"
    assert contender_of("session", group).options["limits"]
    assert contender_of("onnxruntime", group).options == {}
    assert "ewo" in contender_of("apart", group).options["optimize"]


def claim(store: Store, start: str) -> str:
    """Return the text, evidence and verdict of a claim."""
    return next(" ".join(row[:3]) for row in claims.rows(store) if row[0].startswith(start))


def test_claims_are_confirmed_refuted_or_open(tmp_path: Path) -> None:
    store = Store(tmp_path, {"when": "now"})
    assert claim(store, "VGG19").endswith("**not measured**")
    timings = table(store)

    def add(network: str, seconds: Mapping[str, float]) -> None:
        about = {"network": network, "batch": 1, "cap": "sse41", "mix": "tensorflow"}
        timings.add({**about, "engine": name, **times([s], [s])} for name, s in seconds.items())

    add("vgg19", {"baseline": 1.0, "none": 1.0, "lho": 1.0, "ewo": 0.995})
    add("resnet152", {"baseline": 1.0, "none": 0.9, "lho": 0.8, "ewo": 0.4})
    said = "sse41, tensorflow: it gains 0.5 (0.5 to 0.5) % **confirmed**"
    assert claim(store, "VGG19").endswith(said)
    assert "**refuted**" in claim(store, "ResNet-152 gains")
    assert "**confirmed**" in claim(store, "VTensor is faster")
    add("vgg19", {"baseline": 1.0, "none": 1.0, "lho": 1.0, "ewo": 1.2})
    assert "**refuted**" in claim(store, "VGG19")
    assert "slower: vgg19" in claim(store, "VTensor is faster")
    about = {"network": "vgg19", "batch": 1, "cap": "sse41", "mix": "tensorflow"}
    turns = times(*([s] for s in (0.9, 1.1, 0.95, 1.05)))
    timings.add([{**about, "engine": "ewo", **turns}])
    timings.add({**about, "engine": n, **times(*[[1.0]] * 4)} for n in ("baseline", "none", "lho"))
    assert "(-10.0 to 10.0) % **not shown**" in claim(store, "VGG19")
    assert "**not shown**" in claim(store, "VTensor is faster")


def test_rows_of_another_commit_are_measured_again_and_never_mixed_in(tmp_path: Path) -> None:
    keys = [{"network": "a", "engine": n} for n in "xy"]
    old = Store(tmp_path, {"when": "1", "commit": "first"}).table("t", KEY, of_one_commit=True)
    old.add(keys)
    later = Store(tmp_path, {"when": "2", "commit": "second"})
    rows = later.table("t", KEY, of_one_commit=True)
    assert later.missing(rows, keys) == keys
    assert len(rows) == 2  # a report of them can still be written
    rows.add(keys[:1])
    assert [row["engine"] for row in rows] == ["x"]
    assert later.missing(rows, keys) == keys[1:]
    others = later.table("t", KEY)
    assert later.missing(others, keys[:1]) == []


class Scripted(Contender):
    """An engine whose turns take given seconds, and a log of who had a turn."""

    def __init__(self, peer: str, seconds: Iterable[float], log: list[str]) -> None:
        super().__init__(peer, "", "f32", 1.0, worker=cast("Any", True))
        self._seconds, self._log = iter(seconds), log

    def ask(self, request: Any, wanted: Any) -> Any:
        """Answer with the next turn's seconds."""
        self._log.append(self.peer)
        return Timed([next(self._seconds)])


def turns_of(noise: float, scope: Scope) -> tuple[list[str], list[Scripted]]:
    """Take the turns of two engines whose times scatter; return who had them, and the engines."""
    rng, log = np.random.default_rng(0), list[str]()
    times = ((float(rng.lognormal(0, noise)) for _ in count()) for _ in "AB")
    engines = [Scripted(name, seconds, log) for name, seconds in zip("AB", times, strict=True)]
    take_turns([Remote(each, lambda _: None) for each in engines], scope)
    return log, engines


def test_turns_go_forward_and_backward_until_the_ratio_is_known() -> None:
    log, engines = turns_of(0.001, Scope())
    assert "".join(log[2:]) == "ABBA" * 20
    assert [len(each.rounds) for each in engines] == [40, 40]
    more = len(turns_of(0.1, Scope())[1][0].rounds)
    assert 40 < more < 1000
    assert len(turns_of(0.1, Scope(seconds=0.0))[1][0].rounds) == 6  # its time is over


def test_an_interval_that_says_95_percent_holds_the_truth_so_often() -> None:
    rng = np.random.default_rng(0)
    found = [interval(np.exp(rng.normal(0, 0.1, 40)), 0) for _ in range(300)]
    held = sum(one.low <= 1 <= one.high for one in found) / len(found)
    assert 0.9 <= held <= 0.99


def test_what_was_disturbed_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calm, busy = {"busy": 0.0, "loop_s": 1.0}, {"busy": 0.5, "loop_s": 1.0}
    for states, expected in (([calm, busy, calm, calm], False), ([busy] * 4, True)):
        numbers, left = count(1), iter(states)
        monkeypatch.setattr(turns, "machine_state", partial(next, left))
        number, about = undisturbed(partial(next, numbers), 2)
        assert about["disturbed"] is expected
        assert (number, [*left]) == (len(states) // 2, [])


def clocked(conversions: Mapping[str, float], nodes: Mapping[str, float], gap: float) -> Clocked:
    """Return an engine with steps of these microseconds, which grow a little from run to run."""
    times = {**{f"> {name}": us for name, us in conversions.items()}, **nodes}
    growth = (1 + i / 1000 for i in count())

    def run(clock: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        lengths = 1000 * np.array([*times.values()]) * next(growth)
        clock[:, 1] = np.cumsum(lengths + 1000 * gap)
        clock[:, 0] = clock[:, 1] - lengths
        return [np.ones((1, 2), "f4")]

    kinds = {key: "conversions" if key.startswith(">") else "heavy" for key in times}
    return Clocked(run, [*times], kinds, len(conversions), {})


def test_a_cell_compares_engines_with_numpy_and_takes_them_apart() -> None:
    def refuses() -> Clocked:
        raise UnsupportedOperatorError("no library takes it")

    over = Cell("", 1, None, "max", {}, 1, 6, 0.0, 0, 1, "")  # its time is over at once
    long, short = {"x": 10e3, "y": 20e3}, {"y": 20e3}
    makers = {
        "baseline": lambda: clocked(long, {"a": 50e3}, 0.0),
        "ewo": lambda: clocked(short, {"a": 50e3}, 0.0),
        "all": refuses,
    }
    before, after, refused = measured(makers, [np.ones((1, 2))], 1e-4, over)
    assert (before["status"], before["conversions"], "parts" in before) == ("timed", 2, False)
    assert len(before["rounds"]) == len(after["rounds"]) == after["parts"]["pairs"] == 6
    assert after["parts"]["ratio"][0] == pytest.approx(70 / 80, rel=0.01)
    assert after["by_kind"]["conversions"] == pytest.approx(20e6, rel=0.01)
    assert (refused["status"], refused["reason"]) == ("failed", "no library takes it")
    assert refused["rounds"] == []
    for expected in (np.zeros((1, 2)), np.ones((2, 2))):
        row, *_ = measured(makers, [expected], 1e-4, over)
        assert (row["status"], row["rounds"]) == ("disagrees", [])


def test_a_turn_of_a_short_network_has_several_runs_and_keeps_the_median_one() -> None:
    engine = clocked({}, {"a": 3e3}, 0.0)
    engine.warm_up()
    engine.turn()
    [runs], [steps] = engine.rounds, engine.steps
    assert len(runs) == 7
    assert steps["a"] == steps[""] == pytest.approx(1e9 * float(np.median(runs)))


def test_parts_add_up_to_the_difference_and_name_kernels() -> None:
    ms = 1e3
    before = clocked(
        {"x": 10 * ms, "y": 20 * ms}, {"a": 100 * ms, "b": 50 * ms, "c": 7 * ms}, 1 * ms
    )
    after = clocked({"y": 21 * ms, "z": 5 * ms}, {"a": 140 * ms, "b": 40 * ms, "c": 7 * ms}, 2 * ms)
    take_turns([before, after], Scope(pairs=6, seconds=0.0))
    row = parts(before, after)
    by = row["parts_ns"]
    assert sum(by.values()) == pytest.approx(row["after_ns"] - row["before_ns"])
    assert by["conversions gone"] == pytest.approx(-10e6, rel=0.1)
    assert by["conversions new"] == pytest.approx(5e6, rel=0.1)
    assert by["conversions that stay"] == pytest.approx(1e6, abs=1e6)
    assert by["gaps"] == pytest.approx(4e6)
    assert [kernel["node"] for kernel in row["slower"]][:1] == ["a"]
    assert [kernel["node"] for kernel in row["faster"]][:1] == ["b"]
    assert off(row) < 0.01
    row["parts_ns"]["gaps"] += 30e6
    assert off(row) > 0.1


def test_the_first_page_says_what_conversions_are_worth(tmp_path: Path) -> None:
    store = Store(tmp_path, {"when": "now"})
    assert list(worth.answers(store)) == []
    assert claims.summary(store) == "Of 9 claims: 9 not measured."
    assert {row[2] for row in claims.expectations(store)} == {"**not measured**"}
    about = {"batch": 1, "cap": "sse41", "mix": "tensorflow"}
    engines = {"baseline": 1.0, "none": 0.9, "ewo": 0.9}
    for network in ("vgg19", "resnet50"):
        cells = (
            {**about, "network": network, "engine": e, **times([s])} for e, s in engines.items()
        )
        table(store).add(cells)
    counts = {conversions.AWARE: 50, conversions.RESOLVED: 2, conversions.PAPERS: 0}
    store.table(conversions.NAME, conversions.KEY).add(
        {**about, "network": "vgg19", "level": level, "transforms": n}
        for level, n in counts.items()
    )
    cell = {**about, "level": "ewo", "threads": 2, "before_ns": 100.0, "after_ns": 90.0}
    taken = {"vgg19": ([4.0, 0.0], [0.9, 0.89, 0.91]), "resnet50": ([16.0, 9.0], [1.1, 1.05, 1.2])}
    store.table("parts", PARTS_KEY).add(
        {
            **cell,
            "network": name,
            "converting_ns": ns,
            "ratio": ratio,
            "parts_ns": {"gaps": 100.0 * (ratio[0] - 1)},
        }
        for name, (ns, ratio) in taken.items()
    )
    share = {"kind": "pooling", "cap": "max", "size": 224, "threads": 2}
    sides = {"before": {"share": [0.2, 0.19, 0.21]}, "after": {"share": [0.01, 0.01, 0.01]}}
    none = {"before": {"share": [0.0, 0.0, 0.0]}, "after": {"share": [0.0, 0.0, 0.0]}}
    store.table(shares.NAME, shares.KEY).add(
        [{**share, "batch": 1, **sides}, {**share, "batch": 8, **none}]
    )
    text = "\n".join(worth.answers(store))
    for part in (
        "passes take 10.0 % off a run, in the mean of 2 networks",
        "due to the same operators in another layout: 0.0 %",
        "4.0 % (vgg19) to 16.0 % (resnet50) of the baseline's run, 10.0 % in the mean",
        "A run converts vgg19 50 times",
        "Of all 50 conversions the resolver alone leaves 2",
        "at least 5 % of the baseline's run in 1 of 2 settings of small networks of one kind "
        "(pooling), of which VTensor keeps",
    ):
        assert part in text
    verdicts = [row[2] for row in claims.expectations(store)]
    assert verdicts == ["**confirmed**", "**refuted**", "**refuted**", "**confirmed**"]


@pytest.mark.parametrize(
    ("cells", "ratio", "parts_ns", "verdicts"),
    [
        (1, [1.1, 1.05, 1.2], 10.0, ["refuted", "confirmed"]),
        (60, [1.1, 1.05, 1.2], 10.0, ["not shown", "confirmed"]),  # one or two are so by chance
        (1, [1.0, 0.9, 1.1], 5.0, ["not shown", "not shown"]),
        (1, [1.0, 0.99, 1.01], 5.0, ["confirmed", "refuted"]),
    ],
)
def test_verdicts_on_what_was_expected(
    tmp_path: Path, cells: int, ratio: list[float], parts_ns: float, verdicts: list[str]
) -> None:
    store = Store(tmp_path, {"when": "now"})
    row = {"mix": "onednn", "level": "ewo", "threads": 2, "cap": "sse41", "before_ns": 100.0}
    row |= {"after_ns": 100.0, "converting_ns": [1.0, 0.0]}
    equal = {"ratio": [1.0, 0.99, 1.01], "parts_ns": {"gaps": 0.0}}
    rows = [{**row, **equal, "network": f"other{i}"} for i in range(1, cells)]
    rows.append({**row, "network": "vgg19", "ratio": ratio, "parts_ns": {"gaps": parts_ns}})
    store.table("parts", PARTS_KEY).add(rows)
    assert [line[2] for line in claims.expectations(store)][2:] == [f"**{v}**" for v in verdicts]


def test_sections_fit_into_the_time() -> None:
    assert sum(report.SECTIONS.values()) <= MINUTES
    assert [*map(report.minutes, report.experiments())] == [*report.SECTIONS.values()]


def test_parts_of_a_real_network_add_up_and_find_its_conversions() -> None:
    graph, shared = build("mobilenet_v1", 1, size=32), mixes()["tensorflow"]
    feeds = {name: np.ones([*graph.values[name].dims.values()], "f4") for name in graph.inputs}
    network = Network(graph, shared, 1)
    with Session(graph, threads=1, optimize="none", **shared._asdict()) as session:
        first, second = baseline(network, feeds), ours(session, feeds)
        take_turns([first, second], Scope(pairs=6, seconds=0.0))
        assert any(step.is_transform for step in session.plan.steps)
    assert second.converted
    row = parts(first, second)
    assert len(first.converted) <= network.conversions.number
    assert row["pairs"] == 6
    whole = row["after_ns"] - row["before_ns"]
    assert sum(row["parts_ns"].values()) == pytest.approx(whole, abs=1)


def test_the_state_of_the_machine() -> None:
    state = machine_state()
    assert 0 <= state["busy"] <= 1
    assert state["loop_s"] > 0


#: The sections that ``make test`` measures: they take seconds.
QUICK_SECTIONS = (
    "table1",
    "latency",
    "stddev",
    "conversions",
    "parts",
    "shares",
    "batch",
    "breakdown",
)


def test_all_of_it_quickly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(quick=True, to=tmp_path, only="" if ALL else ",".join(QUICK_SECTIONS))
    text = (tmp_path / "REPORT.md").read_text()
    for experiment in report.experiments():
        assert f"## {experiment.TITLE}" in text
    missing = [part for part in text.split("\n## ") if "Not measured yet" in part]
    need_peers = [
        part.TITLE for part in (forms_today, layers, shapes, memory, busy, today, shipped)
    ]
    tried = [part.TITLE for part in report.experiments(() if ALL else QUICK_SECTIONS)]
    untried = [one.TITLE for one in report.experiments() if one.TITLE not in tried]
    assert {part.splitlines()[0] for part in missing} == {*need_peers, *untried}
    plots = ["latency", "stddev", "conversions", "shares", "batch_max"]
    plots += ["loc", "overhead_max"] * ALL
    for file in (tmp_path / f"{name}.{kind}" for name in plots for kind in ("png", "svg")):
        assert file.stat().st_size > 1000
    before = (tmp_path / "timings.json").read_bytes()
    rows = json.loads(before)["rows"]
    assert {row["status"] for row in rows} == {"timed"}
    assert {row["batch"] for row in rows} == {1, 2}
    main(quick=True, to=tmp_path, only="latency,batch")
    assert (tmp_path / "timings.json").read_bytes() == before  # nothing was missing
    assert "REPORT.md" in capsys.readouterr().out


def test_a_layer_that_the_peer_skipped_is_shown_and_left_out_of_the_sum(tmp_path: Path) -> None:
    store, about = Store(tmp_path, {"when": "now"}), {"batch": 1, "cap": "max", "mix": "priority"}
    names = [layers.name_of(layer) for layer in layers.LAYERS]
    row, rows = {**about, "status": "timed", **times([1.0], [1.0])}, table(store, layers.NAME)
    rows.add({**row, "network": name, "engine": one} for name in names for one in layers.ENGINES)
    assert "| all |  | 16000.00 | 16000.00 | **1.00** |" in "\n".join(layers.section(store))
    lost = {**about, "status": "skipped", "runs": 0, "rounds_s": []}
    rows.add([{**lost, "network": names[-1], "engine": layers.PEER}])
    text = "\n".join(layers.section(store))
    assert f"| {names[-1]} | 4 | 1000.00 | skipped |  |" in text
    assert "| those that both ran |  | 12000.00 | 12000.00 | **1.00** |" in text


def test_the_table_of_the_baseline(tmp_path: Path) -> None:
    store, about = Store(tmp_path, {"when": "now"}), {"batch": 1, "cap": "max", "mix": "onednn"}
    row = {**about, "network": "vgg19", "status": "timed", "reason": None, "difference": 1e-6}
    seconds = {"baseline": 2.0, "ewo": 1.5}
    table(store).add({**row, "engine": name, **times([s], [s])} for name, s in seconds.items())
    text = "\n".join(latency.section(store))
    assert "| vgg19 | 2000.00 ± 0.00 | 1500.00 ± 0.00 |  | 25.0 % |" in text


def test_the_tables_of_other_engines(tmp_path: Path) -> None:
    store, about = Store(tmp_path, {"when": "now"}), {"batch": 1, "cap": "max", "mix": "priority"}
    ends = {"difference": 1e-6, "first_s": 3.0, "limits_s": {"warm": 0.8}, "reason": None}
    row = {**about, **ends, "network": "vgg19", "status": "timed"}
    seconds = {"session": 1.0, "openvino": 0.9}
    kept = table(store, peers.NAME)
    kept.add({**row, "engine": name, **times([s], [s])} for name, s in seconds.items())
    lost = {"engine": "mnn", "status": "disagrees", "reason": "far apart", "runs": 0}
    kept.add([{**row, "rounds_s": [], **lost}])
    near, told = (
        {**row, **times([0.5], [0.5]), "network": "resnet50"},
        {"session": 1e-6, "mnn": 2e-3},
    )
    kept.add({**near, "engine": name, "difference": d} for name, d in told.items())
    text = "\n".join(peers.section(store))
    for part in (
        "1.00 (1.00 to 1.00; 2e-03 apart)",
        "to 1.0e-06 of the largest output, but for mnn;",
        "| vgg19 | 1000.00 (1000.00 to 1000.00) | 0.90 (0.90 to 0.90) | disagrees | 1.25 |",
        "Where we are slower: openvino on 1 of 1 networks.",
        "- vgg19, max, priority: mnn disagrees: far apart",
    ):
        assert part in text


def test_kinds_of_steps_share_out_a_profiled_run() -> None:
    assert set(HEAVY) <= OPERATORS.keys()
    with Session(build("mobilenet_v1", size=64)) as session:
        profile = session.profile(runs=3)
    data = json.loads(json.dumps(profiled_row(profile)))
    kinds = data["by_kind"]
    assert kinds.keys() <= set(KINDS)
    assert sum(kind["ns"] for kind in kinds.values()) == pytest.approx(data["total"]["ns"])
    assert sum(kind["steps"] for kind in kinds.values()) == len(profile.steps)
    assert kinds["heavy"]["operations"] > 0.9 * data["total"]["operations"]
    line = shown([{"network": "mobilenet_v1", **data}]).splitlines()[-1].split(" | ")
    median, share = data["run_ns"]["median"] / 1e6, kinds["heavy"]["share"]
    assert line[:2] == ["| mobilenet_v1", f"{median:.2f}"]
    assert line[2] == f"{share:.1%}".replace("%", " %")


def test_each_part_of_a_step_is_measured() -> None:
    costs = json_of(steps.main, "--steps", 20, "--rounds", 5)
    assert (costs.pop("steps"), costs.pop("rounds")) == (20, 5)
    assert set(costs) == {"step", "timed step", "python step", "run", "run of a team", "call"}
    assert min(costs.values()) > 0
