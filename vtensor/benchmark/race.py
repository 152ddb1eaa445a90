"""A race: several peers run one model in alternating rounds, never two at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field, replace
from typing import Any, Literal, TypeVar

import numpy as np

from vtensor.benchmark.agreement import BOUNDS, difference
from vtensor.benchmark.messages import Answer, Finished, Loaded, Timed
from vtensor.benchmark.peer import Hint, Precision, Task, peer_at
from vtensor.benchmark.process import Gone, Worker
from vtensor.errors import PeerError
from vtensor.language.records import dataclass

A = TypeVar("A", bound=Answer)
Status = Literal["timed", "skipped", "failed", "disagrees"]
Advance = Callable[[str], None]

#: The name and the place of VTensor, which is the first contender in every race.
OURS = {"vtensor": "vtensor.benchmark.ours:VTensor"}

#: The precision of VTensor in every race, as sessions have no other.
OUR_PRECISION: Precision = "f32"


@dataclass(frozen=True)
class RaceSettings:
    """The settings of a race.

    Attributes:
        threads: the number of threads of each peer.
        rounds: the number of rounds, at least 2.
        seconds: seconds of timed runs for each peer, in all rounds.
        limit_s: the most seconds of one answer: loading with the first run, or a round.
        seed: the seed of the order within rounds, and of the bootstrap.
        hint: latency or throughput; see ``Task``.
    """

    threads: int
    rounds: int
    seconds: float
    limit_s: float
    seed: int
    hint: Hint = "latency"


@dataclass
class Contender:
    """A peer on one model, and its results.

    Attributes:
        peer: the peer's name.
        place: the peer's place, ``"package.module:Class"``.
        precision: the precision that it computes in.
        limit_s: the most seconds of one answer.
        status: whether it was timed.
        reason: why it was not timed.
        difference: the difference of its outputs from VTensor's.
        loaded, finished: its answers after loading and at the end.
        rounds: the seconds of each run, by round.
        worker: its process; None before it enters and after it has left.
        options: further options of its task.
        bound: the largest accepted difference; None for the precision's.
        environment: further environment variables of its process.
    """

    peer: str
    place: str
    precision: Precision
    limit_s: float
    status: Status = "timed"
    reason: str = ""
    difference: float | None = None
    loaded: Loaded | None = None
    finished: Finished | None = None
    rounds: list[Sequence[float]] = field(default_factory=list)
    worker: Worker | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    bound: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str | None:
        """The peer's version; None if it is not installed."""
        peer = peer_at(self.place)
        return None if peer.absent() else peer.version()

    def enter(self, task: Task) -> None:
        """Start the peer's process, load the model and run it once.

        If the peer is absent or does not answer, it leaves.
        """
        if why := peer_at(self.place).absent():
            self.leave("skipped", why)
            return
        self.worker = Worker(self.place, task.threads, self.environment)
        self.loaded = self.ask(
            replace(task, precision=self.precision, options=self.options), Loaded
        )

    def agree(self, ours: Loaded) -> None:
        """Compare its outputs with VTensor's; it leaves if they differ by more than the bound."""
        if self.loaded is None:
            return
        try:
            self.difference = difference(ours.outputs, self.loaded.outputs)
        except PeerError as error:
            self.leave("disagrees", str(error))
            return
        bound = BOUNDS[self.precision] if self.bound is None else self.bound
        if not self.difference <= bound:
            text = f"its outputs are {self.difference:.1e} of the largest apart from ours"
            self.leave("disagrees", f"{text}, and {bound:g} are allowed")

    def ask(self, request: Task | float | None, wanted: type[A]) -> A | None:
        """Return its worker's answer; None if there is none, and it leaves."""
        assert self.worker is not None, "a contender that has left is not asked"
        try:
            return self.worker.ask(request, wanted, self.limit_s)
        except Gone as error:
            self.leave("failed" if error.failed else "skipped", str(error))
            return None

    def leave(self, status: Status, reason: str) -> None:
        """End its part in the race, with this status and reason."""
        self.status, self.reason = status, reason
        self.close()

    def close(self) -> None:
        """End its process, if there is one."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None


def race(
    task: Task, peers: Mapping[str, str], settings: RaceSettings, advance: Advance
) -> list[Contender]:
    """Load all contenders, compare their outputs with VTensor's, then time them in turns.

    Args:
        task: the model and its inputs; its precision is that of the peers.
        peers: the peers' places by name.
        settings: the settings of the race.
        advance: called with a text about the progress.

    Returns:
        The contenders: VTensor, then the peers in order.
    """
    limit_s = settings.limit_s
    [ours] = [Contender(name, place, OUR_PRECISION, limit_s) for name, place in OURS.items()]
    others = [Contender(name, place, task.precision, limit_s) for name, place in peers.items()]
    with ExitStack() as stack:
        for contender in (ours, *others):
            stack.callback(contender.close)
            advance(f"{contender.peer} loads")
            if contender is ours or ours.loaded:
                contender.enter(task)
            else:
                contender.leave("skipped", f"{ours.peer} has no answer to compare with")
            if ours.loaded:
                contender.agree(ours.loaded)
        _take_turns([ours, *others], settings, advance)
        for contender in (ours, *others):
            if contender.worker:
                contender.finished = contender.ask(None, Finished)
    return [ours, *others]


def _take_turns(contenders: Sequence[Contender], settings: RaceSettings, advance: Advance) -> None:
    """Run all rounds, each in a random order of the contenders that have not left."""
    rng = np.random.default_rng(settings.seed)
    for number in range(settings.rounds):
        for place in rng.permutation(len(contenders)):
            contender = contenders[place]
            if contender.worker is None:
                continue
            advance(f"round {number + 1} of {settings.rounds}, {contender.peer}")
            if answer := contender.ask(settings.seconds / settings.rounds, Timed):
                contender.rounds.append(answer.seconds)
