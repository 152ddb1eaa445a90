"""One model, run by several peers in alternating rounds: never two at once."""

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

#: The place of ourselves, by the name under which we stand first in every race.
OURS = {"vtensor": "vtensor.benchmark.ours:VTensor"}

#: In which we run whatever the peers do, as long as sessions have no other.
OUR_PRECISION: Precision = "f32"


@dataclass(frozen=True)
class Settings:
    """How a race is run.

    Attributes:
        threads: of a run, for all the same.
        rounds: how often each peer has its turn, at least 2.
        seconds: of timed runs for each peer, over all rounds.
        limit_s: what any one answer may take: loading with the first run, or a round.
        seed: of the order within rounds, and of the bootstrap.
        hint: what counts, as a task has it.
    """

    threads: int
    rounds: int
    seconds: float
    limit_s: float
    seed: int
    hint: Hint = "latency"


@dataclass
class Contender:
    """A peer on one model, and what became of it; ``reason`` says why it was not timed.

    ``options`` are those of its task; ``environment`` is what its process has besides. It agrees
    with others within ``bound``, the precision's own if there is none.
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
        """Of the peer, if it is installed."""
        peer = peer_at(self.place)
        return None if peer.absent() else peer.version()

    def enter(self, task: Task) -> None:
        """Start its process, load, run once."""
        if why := peer_at(self.place).absent():
            self.leave("skipped", why)
            return
        self.worker = Worker(self.place, task.threads, self.environment)
        self.loaded = self.ask(
            replace(task, precision=self.precision, options=self.options), Loaded
        )

    def agree(self, ours: Loaded) -> None:
        """See that it computes what we do, or let it leave."""
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
        """Its worker's answer; it leaves if there is none."""
        assert self.worker is not None, "who has left is not asked"
        try:
            return self.worker.ask(request, wanted, self.limit_s)
        except Gone as error:
            self.leave("failed" if error.failed else "skipped", str(error))
            return None

    def leave(self, status: Status, reason: str) -> None:
        """Nothing more is asked of it."""
        self.status, self.reason = status, reason
        self.close()

    def close(self) -> None:
        """End its process, if it has one."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None


def race(
    task: Task, peers: Mapping[str, str], settings: Settings, advance: Advance
) -> list[Contender]:
    """Load all, compare them with us, then time them in turns.

    Args:
        task: what is run; its precision is the peers'.
        peers: places by name.
        advance: is told what is being done.

    Returns:
        We ourselves, then the peers in order.
    """
    limit_s = settings.limit_s
    [ours] = [Contender(name, place, OUR_PRECISION, limit_s) for name, place in OURS.items()]
    others = [Contender(name, place, task.precision, limit_s) for name, place in peers.items()]
    with ExitStack() as stack:
        for one in (ours, *others):
            stack.callback(one.close)
            advance(f"{one.peer} loads")
            if one is ours or ours.loaded:
                one.enter(task)
            else:
                one.leave("skipped", f"{ours.peer} has no answer to compare with")
            if ours.loaded:
                one.agree(ours.loaded)
        _take_turns([ours, *others], settings, advance)
        for one in (ours, *others):
            if one.worker:
                one.finished = one.ask(None, Finished)
    return [ours, *others]


def _take_turns(contenders: Sequence[Contender], settings: Settings, advance: Advance) -> None:
    """Rounds, each in an order of its own, until all have run or left."""
    rng = np.random.default_rng(settings.seed)
    for number in range(settings.rounds):
        for place in rng.permutation(len(contenders)):
            one = contenders[place]
            if one.worker is None:
                continue
            advance(f"round {number + 1} of {settings.rounds}, {one.peer}")
            if answer := one.ask(settings.seconds / settings.rounds, Timed):
                one.rounds.append(answer.seconds)
