"""The interface of experiments, their scope, and the store of their rows.

An experiment is a module with ``NAME`` (of its table of rows), ``TITLE`` (of its section in the
report), ``measure(scope, store)``, which adds the rows that the store lacks, and
``section(store)``, which yields the section's paragraphs as Markdown and draws its plots.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from eval.networks import NAMES
from eval.store import RESULTS, Key, Row, Table, about, instructions
from vtensor.runtime.execution.processors import available_threads

#: Networks that gain much from approximate kernels.
HEAVIER = ("googlenet", "inception_v3", "resnet50", "resnet101", "vgg19")
#: Networks that take at most about two seconds for a batch of eight, under the cap ``sse41``.
SMALLER = ("googlenet", "inception_v2", "resnet50", "mobilenet_v1", "mobilenet_v2")

Advance = Callable[[str, int, int], None]

Folder = Annotated[Path | None, typer.Option("--to", help="Folder of results.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print rows as JSON.")]
Full = Annotated[bool, typer.Option("--full", help="Long turns, every cap, batch 32.")]
Quick = Annotated[bool, typer.Option("--quick", help="A few minutes: does everything work?")]
Again = Annotated[bool, typer.Option("--again", help="Measure what is there already, too.")]
Only = Annotated[str, typer.Option(help="Names to which it is restricted, with commas.")]


@dataclass(frozen=True)
class Scope:
    """The extent of a measurement.

    Attributes:
        name: the name, which is also the subfolder of results, except for ``default``.
        networks: names of networks.
        size: height and width of images in pixels; None is each network's own.
        caps: the caps on instruction sets under which latencies are measured.
        mixes: names of mixes in ``eval/mixes.py``.
        batches: sizes of batches, from 1 on.
        batch_caps, batch_networks: caps and networks for batches above 1; the resolver alone is
            measured under the same caps.
        tuned_networks: networks on which sessions with ``tune=True`` are measured.
        every_model: measure all models of today instead of a few of each kind.
        pairs: the least number of turns of each configuration, if there is time for so many.
        within: turns end when the interval of each ratio to the baseline reaches at most this share
            from the ratio; a ratio with a wider interval is not shown.
        seconds: the most seconds for the turns of the baseline and one other configuration; each
            further one adds a third of them.
        tries: how often engines are measured at most, if other programs disturb them each time.
        runs: the number of runs of a profile.
        fresh: the number of processes in which planning is measured.
        repeats: how often a single Transform is timed.
        peers: time other engines, too.
        frameworks: among them TensorFlow, PyTorch and MNN, which take minutes to load.
        only: names to which ``eval.narrow`` and ``eval.figures.latency`` are restricted; empty is
            all.
        threads: the number of threads of a run.
        seed: the seed of the order of turns, and of the draws for confidence intervals.
    """

    name: str = "default"
    networks: tuple[str, ...] = NAMES
    size: int | None = None
    caps: tuple[str, ...] = ("sse41", "avx2", "max")
    mixes: tuple[str, ...] = ("onednn", "tensorflow", "elementwise")
    batches: tuple[int, ...] = (1, 2, 8)
    batch_caps: tuple[str, ...] = ("sse41",)
    batch_networks: tuple[str, ...] = SMALLER
    tuned_networks: tuple[str, ...] = HEAVIER
    every_model: bool = False
    pairs: int = 40
    within: float = 0.02
    seconds: float = 22.0
    tries: int = 2
    runs: int = 30
    fresh: int = 3
    repeats: int = 5
    peers: bool = True
    frameworks: bool = False
    only: tuple[str, ...] = ()
    threads: int = 0
    seed: int = 0

    @classmethod
    def of(cls, full: bool, quick: bool) -> Scope:
        """Return the scope for the options ``--full`` and ``--quick``; the second wins."""
        threads = available_threads()
        if quick:
            return QUICK
        return replace(FULL if full else cls(), threads=threads)


FULL = Scope(
    name="full",
    caps=("sse41", "avx2", "avx512", "max"),
    batches=(1, 2, 4, 8, 16, 32),
    batch_caps=("sse41", "max"),
    batch_networks=NAMES,
    tuned_networks=NAMES,
    every_model=True,
    frameworks=True,
    seconds=300.0,
    runs=1000,
    repeats=25,
)
QUICK = Scope(
    name="quick",
    networks=("mobilenet_v1",),
    size=32,
    caps=("max",),
    mixes=("tensorflow",),
    batches=(1, 2),
    batch_caps=("max",),
    batch_networks=("mobilenet_v1",),
    tuned_networks=("mobilenet_v1",),
    pairs=4,
    seconds=0.5,
    tries=1,
    runs=4,
    fresh=1,
    repeats=1,
    peers=False,
    threads=1,
)


class Experiment(Protocol):
    """The interface of an experiment's module, as the module's docstring here describes it."""

    NAME: str
    TITLE: str

    def measure(self, scope: Scope, store: Store) -> None: ...

    def section(self, store: Store) -> Iterator[str]: ...


@dataclass(frozen=True)
class Store:
    """The folder of results, with the progress of a measurement.

    Attributes:
        folder: the folder of tables and plots.
        run: machine and versions of new rows; None if nothing is measured.
        again: also measure rows that this machine has measured; rows of another machine are
            always measured again.
        until: when no further measurement begins, in seconds of ``time.monotonic``.
        advance: called when a measurement begins, with (description, index from 0, number of all
            measurements).
    """

    folder: Path
    run: Row | None = None
    again: bool = False
    until: float = math.inf
    advance: Advance = lambda *_: None

    def table(self, name: str, key: Sequence[str], of_one_commit: bool = False) -> Table:
        """Return the table with a name, whose rows are identified by the columns ``key``.

        ``of_one_commit`` is an argument of ``Table``.
        """
        return Table(self.folder, name, key, self.run, of_one_commit)

    def missing(self, table: Table, keys: Sequence[Row]) -> list[Row]:
        """Return those of ``keys`` whose row the table lacks, or has to be measured again."""
        return [key for key in keys if not table.has(**key) or self._stale(table, key)]

    @property
    def late(self) -> bool:
        """Whether ``until`` has passed, so that no further measurement may begin."""
        return time.monotonic() > self.until

    def _stale(self, table: Table, key: Row) -> bool:
        """Return whether the row with a key has to be measured again.

        It has to if it comes from another machine, from another commit in a table of one commit, or
        with ``again`` from an earlier run.
        """
        row = table.one(**key)
        if row is None or self.run is None:
            return False
        run = table.runs[row["run"]]
        if self.again:
            return run != self.run
        return _where(run) != _where(self.run) or table.outdated(row)


def _where(run: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the processor of a run, the number of its cores, and its instruction sets."""
    here = run.get("machine", {})
    return here.get("processor"), here.get("processors"), instructions(here)


def folder_of(scope: Scope) -> Path:
    """Return the default folder of a scope's results.

    It is ``RESULTS`` for the default scope, and a subfolder with the scope's name for any other.
    """
    return RESULTS if scope.name == Scope.name else RESULTS / scope.name


@contextmanager
def opened(
    scope: Scope, to: Path | None = None, again: bool = False, minutes: float = math.inf
) -> Iterator[Store]:
    """Yield a store to which new rows can be added; show a progress bar while the block runs.

    Args:
        scope: the extent of the measurement.
        to: the folder of results; None is the scope's default folder.
        again: True also measures rows that this machine has measured before.
        minutes: the number of minutes after which no further measurement begins.
    """
    until = time.monotonic() + 60 * minutes
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    hidden = not console.is_terminal
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=hidden) as bar:
        task = bar.add_task("", total=None)

        def advance(what: str, number: int, count: int) -> None:
            bar.update(task, description=what, completed=number, total=count)

        yield Store(to or folder_of(scope), about(scope.seed, scope.name), again, until, advance)


def alone(
    experiment: Experiment, scope: Scope, to: Path | None, again: bool, as_json: bool
) -> None:
    """Measure the rows that one experiment lacks; print its section, or its rows as JSON.

    Args:
        experiment: the module.
        scope: the extent of the measurement.
        to, again: as in ``opened``.
        as_json: True prints the rows as JSON, False the section of the report.
    """
    with opened(scope, to, again) as store:
        experiment.measure(scope, store)
    text = "\n\n".join(experiment.section(store))
    if as_json:
        print(json.dumps(list(store.table(experiment.NAME, ())), indent=2))
    else:
        print(f"# {experiment.TITLE}\n\n{text}")


def command(experiment: Experiment, every_model: bool = False) -> Callable[..., None]:
    """Return the command-line function of an experiment that has no options of its own.

    Args:
        experiment: the module.
        every_model: True measures all models of today, also without the option ``--full``.
    """

    def main(
        full: Full = False,
        quick: Quick = False,
        again: Again = False,
        to: Folder = None,
        as_json: AsJson = False,
    ) -> None:
        scope = Scope.of(full, quick)
        scope = replace(scope, every_model=every_model or scope.every_model)
        alone(experiment, scope, to, again, as_json)

    main.__doc__ = experiment.TITLE
    return main


def selecting(experiment: Experiment) -> Callable[..., None]:
    """Return the command-line function of an experiment that ``--only`` restricts to some names."""

    def main(
        full: Full = False,
        quick: Quick = False,
        again: Again = False,
        to: Folder = None,
        as_json: AsJson = False,
        only: Only = "",
    ) -> None:
        scope = replace(Scope.of(full, quick), only=tuple(filter(None, only.split(","))))
        alone(experiment, scope, to, again, as_json)

    main.__doc__ = experiment.TITLE
    return main


__all__ = [
    "FULL",
    "QUICK",
    "Experiment",
    "Key",
    "Scope",
    "Store",
    "alone",
    "command",
    "opened",
    "selecting",
]
