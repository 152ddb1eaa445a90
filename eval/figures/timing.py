"""Times of networks in many engines, each in a process of its own, from which figures are made.

A configuration is a network, a batch size, a cap on the instruction set, a mix of libraries and an
engine: VTensor with some options, or a peer. All engines of a group are loaded (the warm-up stage),
compared with the NumPy definition, and timed in turns, forward and backward (the test stage,
``turns.py``), so that a change of the machine affects all. A group that other programs disturbed is
measured again. An engine whose output is further from NumPy's than its bound is not timed. If a
network ends in a Softmax, which magnifies errors, the bound is made larger, so that it holds for
the Softmax's input. ``cells.py`` times VTensor's levels beside the layout-aware baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from eval.bench import FRAMEWORKS
from eval.compare import photograph
from eval.experiment import Scope, Store
from eval.figures.turns import (
    Remote,
    interval,
    narrow_enough,
    take_turns,
    turn_times,
    undisturbed,
)
from eval.networks import build
from eval.processes import capable
from eval.store import Row, Table
from ops import Softmax
from optimizer.pipeline import LEVELS as LEVEL_PASSES
from vtensor import Session, save_onnx
from vtensor.benchmark.agreement import BOUNDS
from vtensor.benchmark.messages import Finished, Loaded
from vtensor.benchmark.peer import Array, Task, peer_at
from vtensor.benchmark.race import Contender
from vtensor.benchmark.summary import Ratio, Rounds
from vtensor.commands.bench import PEERS
from vtensor.language.graph import Graph

KEY = ("network", "batch", "size", "cap", "mix", "engine", "threads")
#: The mixes of libraries; ``eval/mixes.py`` defines them.
MIXES = ("onednn", "tensorflow", "elementwise")
#: The name of a session with its defaults.
SESSION = "session"
#: A session with its defaults, except that EWO takes the place of the joint choice: libraries are
#: chosen by priority, then layouts for the fewest bytes.
APART = "apart"
SESSIONS = {
    SESSION: LEVEL_PASSES["all"],
    APART: tuple("ewo" if name == "joint" else name for name in LEVEL_PASSES["all"]),
}
#: Sessions on one library; NumPy runs the operators that the library lacks.
ALONE = {"onednn alone": "onednn", "eigen alone": "eigen"}
#: Sessions with ``tune=True``, and the tolerance of each.
STRICT, TOLERANT = "strict", "tolerant"
TUNED = {STRICT: 0.0, TOLERANT: 1e-5}
#: By engine, a larger accepted error: MNN's f32 convolutions are Winograd's, which are inexact.
INEXACT = {"mnn": 1e-2}
OTHERS = {**PEERS, **FRAMEWORKS, "mnn": "eval.peers.mnn:Mnn"}
#: Seconds that one answer of a peer may take: inductor compiles for minutes.
LIMIT_S = 1200.0
#: The number of random draws of rounds from which a confidence interval comes (the bootstrap), and
#: the confidence of the interval.
DRAWS, CONFIDENCE = 1000, 0.95
#: The accepted error e of the input of a network's last Softmax, relative to its largest value L.
#: The Softmax's outputs then have relative errors of up to 2 e L.
INNER = 1e-5


@dataclass(frozen=True)
class Group:
    """Engines that are timed in turns on the same network.

    Attributes:
        network: the network's name.
        batch: the number of images in a batch.
        cap: the cap on the instruction set; ``max`` is none.
        mix: the name of the mix of libraries.
        engines: the engines' names.
    """

    network: str
    batch: int
    cap: str
    mix: str
    engines: tuple[str, ...]

    def keys(self, scope: Scope) -> list[Row]:
        """Return the key of each engine's row."""
        size, threads = scope.size, scope.threads
        about = {"network": self.network, "batch": self.batch, "size": size, "cap": self.cap}
        rest = {"mix": self.mix, "threads": threads}
        return [{**about, **rest, "engine": engine} for engine in self.engines]


def caps(scope: Scope) -> list[str]:
    """Return the caps of a scope that this processor supports."""
    able = capable()
    return [cap for cap in scope.caps if cap in able]


def peers() -> list[str]:
    """Return the names of the installed engines other than VTensor."""
    return [name for name, place in OTHERS.items() if peer_at(place).absent() is None]


def absent() -> dict[str, str]:
    """Return the reasons why engines are not installed, by the names of these engines."""
    reasons = {name: peer_at(place).absent() for name, place in OTHERS.items()}
    return {name: why for name, why in reasons.items() if why}


def table(store: Store, name: str = "timings") -> Table:
    """Return the table of rows named ``name``; ``timings`` has the times of all figures.

    Its rows are identified by the columns ``KEY``.
    """
    return store.table(name, KEY, of_one_commit=True)


def measure(
    scope: Scope,
    store: Store,
    wanted: Iterable[Group],
    name: str = "timings",
    model_of: Callable[[str, int, Scope, Path], Model] | None = None,
) -> None:
    """Time those of the groups of which a row is missing, one network after another.

    Args:
        scope: the extent of the measurement.
        store: the folder of results.
        wanted: the groups.
        name: the name of the table that gets the rows.
        model_of: a function (network, batch size, scope, folder for files) that returns the
            network's model; None means ``Model``, which builds one of the twelve networks.
    """
    kept = table(store, name)
    order = {name: place for place, name in enumerate(scope.networks)}
    todo = [group for group in wanted if store.missing(kept, group.keys(scope))]
    todo.sort(key=lambda group: (order.get(group.network, len(order)), group.network, group.batch))
    count = 0
    for (network, batch), alike in groupby(todo, lambda group: (group.network, group.batch)):
        with TemporaryDirectory() as folder:
            model = (model_of or Model)(network, batch, scope, Path(folder))
            for group in alike:
                if store.late:
                    return
                title = f"{network}, batch {batch}, {group.cap}, {group.mix}"
                told = _teller(store, title, count, len(todo))
                rows, about = undisturbed(partial(timed, group, scope, model, told), scope.tries)
                kept.add({**row, **about} for row in rows)
                count += 1


def _teller(store: Store, title: str, number: int, count: int) -> Callable[[str], None]:
    return lambda what: store.advance(f"{title}: {what}", number, count)


class Model:
    """A network's ONNX file with its inputs, and the outputs that NumPy's definitions compute.

    Args:
        network: the network's name.
        batch: the number of images in a batch.
        scope: gives the size of images.
        folder: where the file is written.
        given: (file, inputs by name) of an existing ONNX file; None builds the network and writes
            its file.
    """

    def __init__(
        self,
        network: str,
        batch: int,
        scope: Scope,
        folder: Path,
        given: tuple[Path, Mapping[str, Array]] | None = None,
    ) -> None:
        self.network, self.size = network, scope.size
        self.file, self.feeds = given or self._made(batch, folder / f"{network}.onnx")
        self._oracle: Loaded | None = None
        #: The accepted difference from the oracle's outputs, relative to the largest output;
        #: ``oracle`` may increase it.
        self.bound = BOUNDS["f32"]

    def _made(self, batch: int, file: Path) -> tuple[Path, Mapping[str, Array]]:
        graph = self.graph(batch)
        save_onnx(graph, file)
        inputs = {name: tuple(graph.values[name].dims.values()) for name in graph.inputs}
        return file, {name: photograph(shape) for name, shape in inputs.items()}

    def graph(self, batch: int) -> Graph:
        """Return the network's graph for a batch size."""
        return build(self.network, batch, size=self.size)

    def oracle(self) -> Loaded:
        """Return the expected outputs, which the NumPy library computes.

        The first call computes them, image by image, and sets ``bound``.
        """
        if self._oracle is None:
            outputs, bound = oracle_of(self.graph(1), self.feeds)
            self._oracle, self.bound = Loaded(0.0, 0.0, outputs), max(self.bound, bound)
        return self._oracle


def oracle_of(graph: Graph, feeds: Mapping[str, Array]) -> tuple[list[Array], float]:
    """Return the outputs that the NumPy library computes, and the accepted difference from them.

    Args:
        graph: a network for one image.
        feeds: one or several images, by the name of the only input; they are computed one by one.
    """
    stretched = _stretched(graph)
    options: Any = {"libraries": ["numpy"], "optimize": "none"}
    with Session(graph, **options) as session:
        [[name, images]] = feeds.items()
        wanted = [*graph.outputs, *stretched]
        rows = [session.run(wanted, {name: image[None]}) for image in images]
    parts = [np.concatenate(rows) for rows in zip(*rows, strict=True)]
    outputs, inner = parts[: len(graph.outputs)], parts[len(graph.outputs) :]
    return outputs, max([BOUNDS["f32"], *(2 * INNER * float(np.abs(x).max()) for x in inner)])


def _stretched(graph: Graph) -> list[str]:
    """Return the names of the inputs of each Softmax whose result is an output of the graph."""
    last = set(graph.outputs.values())
    return [
        node.inputs[0]
        for node in graph.nodes.values()
        if isinstance(node.op, Softmax) and last.intersection(node.outputs)
    ]


def contender(engine: str, group: Group) -> Contender:
    """Return the contender for an engine of a group: the engine in a process of its own.

    The engine's options follow from its name and from the group.

    Args:
        engine: the engine's name: a key of ``OTHERS``, ``SESSIONS``, ``TUNED`` or ``ALONE``.
        group: gives the mix of libraries. A session that comes first in it also gets lower bounds.
    """
    options: dict[str, Any] = {"mix": group.mix}
    place = "eval.peers.ours:Level"
    if engine in OTHERS:
        place, options = OTHERS[engine], {}
    elif engine in TUNED:
        tuned = {"tune": True, "tolerance": TUNED[engine]}
        options |= {"optimize": LEVEL_PASSES["all"], "told": tuned}
    elif engine in ALONE:
        options |= {"optimize": LEVEL_PASSES["all"], "mix": ALONE[engine]}
    else:
        options |= {"optimize": SESSIONS[engine], "limits": engine == group.engines[0]}
    return Contender(engine, place, "f32", LIMIT_S, options=options)


def timed(group: Group, scope: Scope, model: Model, told: Callable[[str], None]) -> list[Row]:
    """Load a group's engines, compare their outputs with NumPy's, time them; return their rows.

    Args:
        group: the engines.
        scope: gives the numbers of runs and rounds.
        model: the network; its method ``oracle`` returns the expected outputs.
        told: called, with a description, before each part of the measurement.
    """
    task = Task(model.file, model.feeds, scope.threads, "f32")
    contenders = [contender(engine, group) for engine in group.engines]
    told("NumPy answers")
    oracle = model.oracle()
    with ExitStack() as stack:
        for engine, each in zip(group.engines, contenders, strict=True):
            stack.callback(each.close)
            told(f"{each.peer} loads")
            each.enter(task)
            each.bound = max(model.bound, INEXACT.get(engine, 0.0))
            each.agree(oracle)
        take_turns([Remote(each, told) for each in contenders], scope)
        for each in contenders:
            if each.worker:
                each.finished = each.ask(None, Finished)
    pairs = zip(group.keys(scope), contenders, strict=True)
    return [{**key, **_row(each, scope.seed)} for key, each in pairs]


def _row(one: Contender, seed: int) -> Row:
    """Return the measured fields of an engine's row: status, difference from NumPy, and times.

    Times are in seconds; ``rounds_s`` has those of single runs, by round. ``seed`` is the seed of
    the draws for the confidence interval.
    """
    loaded, ended = one.loaded, one.finished
    return {
        "status": one.status,
        "reason": one.reason or None,
        "version": one.version,
        "difference": one.difference,
        "bound": BOUNDS["f32"] if one.bound is None else one.bound,
        "load_s": loaded and loaded.load_s,
        "first_s": loaded and loaded.first_s,
        "peak_bytes": ended and ended.peak_bytes,
        "conversions": ended and ended.conversions,
        "limits_s": ended and dict(ended.limits),
        **times(one.rounds if one.status == "timed" else [], seed),
    }


def times(rounds: Rounds, seed: int) -> Row:
    """Return the columns of a row that say how long runs took: ``summary``, and all seconds.

    Args:
        rounds: the seconds of each run, by round; empty if the engine was not timed.
        seed: the seed of the draws for the confidence interval.
    """
    every = [[round(second, 9) for second in seconds] for seconds in rounds]
    return {**(summary(rounds, seed) if rounds else {"runs": 0}), "rounds_s": every}


def summary(rounds: Rounds, seed: int) -> Row:
    """Return the number of runs, and the mean, deviation, median and least of their times.

    Times are in seconds. ``low_s`` and ``high_s`` are the confidence interval of the median, from
    random draws of rounds (the bootstrap).

    Args:
        rounds: the seconds of each run, by round.
        seed: the seed of the draws.

    >>> summary([[1.0, 3.0], [2.0]], 0)["median_s"]
    2.0
    """
    times, rng = (
        np.concatenate([np.asarray(seconds) for seconds in rounds]),
        np.random.default_rng(seed),
    )
    parts = [np.asarray(seconds) for seconds in rounds]
    drawn = (rng.integers(0, len(parts), len(parts)) for _ in range(DRAWS))
    medians = [np.median(np.concatenate([parts[i] for i in row])) for row in drawn]
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [outside, 1 - outside])
    return {
        "runs": int(times.size),
        "mean_s": float(times.mean()),
        "std_s": float(times.std()),
        "median_s": float(np.median(times)),
        "low_s": float(low),
        "high_s": float(high),
        "least_s": float(times.min()),
    }


@dataclass(frozen=True)
class Gain:
    """A gain over the baseline, as a share of the baseline's time: 1 - t / t_base.

    Attributes:
        mean: the gain if t is the mean time.
        median: the gain if t / t_base is the median ratio over pairs of turns.
        low, high: the confidence interval of ``median``.
        pairs: the number of pairs.
    """

    mean: float
    median: float
    low: float
    high: float
    pairs: int

    @property
    def shown(self) -> bool:
        """Whether the interval is narrow enough for the gain to be shown."""
        ratio = Ratio(1 - self.median, 1 - self.high, 1 - self.low)
        return narrow_enough(ratio, Scope.within)

    def __str__(self) -> str:
        text = f"{self.median * 100:.1f}" if self.shown else "not shown"
        return f"{text} ({self.low * 100:.1f} to {self.high * 100:.1f}) %"


def gain(before: Row | None, after: Row | None, seed: int = 0) -> Gain | None:
    """Return the gain of an engine over the baseline; None if one of them was not timed.

    Args:
        before: the baseline's row.
        after: the engine's row, of the same group.
        seed: the seed of the draws for the confidence interval.
    """
    if not before or not after or not (before["runs"] and after["runs"]):
        return None
    theirs, ours = turn_times([before, after])
    ratio = interval(ours / theirs, seed)
    mean = 1 - after["mean_s"] / before["mean_s"]
    return Gain(mean, 1 - ratio.value, 1 - ratio.high, 1 - ratio.low, theirs.size)


def mean_gain(gains: Iterable[Gain | None]) -> float | None:
    """Return the mean of ``Gain.mean`` over networks, as in the paper; None without gains."""
    means = [gained.mean for gained in gains if gained]
    return fmean(means) if means else None


__all__ = ["KEY", "MIXES", "SESSION", "Gain", "Group", "gain", "measure"]
