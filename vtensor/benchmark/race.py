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

#: The name of VTensor as a peer, and its place; VTensor is the first contender in every race.
OURS = {"vtensor": "vtensor.benchmark.ours:VTensor"}

#: The precision of VTensor with whose outputs those of all others are compared.
OUR_PRECISION: Precision = "f32"

#: The precision in which a session takes part as well if peers compute in it, and its name then.
NARROW: Precision = "bf16"
NARROW_NAME = f"vtensor {NARROW}"


@dataclass(frozen=True)
class RaceSettings:
    """The settings of a race.

    Attributes:
        threads: the number of threads of each peer.
        rounds: the number of rounds, at least 2.
        seconds: for each peer, the seconds of timed runs in all rounds together.
        limit_s: the most seconds to wait for one answer: to load and run first, or to run a round.
        seed: the seed of the order of peers within rounds, and of the bootstrap.
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
    """A peer (an inference engine) in a race on one model, and its results.

    Attributes:
        peer: the peer's name.
        place: the peer's place, ``"package.module:Class"``.
        precision: the element type in which the peer multiplies and adds.
        limit_s: the most seconds to wait for one answer.
        status: ``timed`` as long as the peer takes part; else why it has left the race.
        reason: the reason in words for a status other than ``timed``.
        difference: the difference of the peer's outputs from VTensor's; None before the comparison.
        loaded, finished: the peer's answers after loading and at the end; None without an answer.
        rounds: for each round, the seconds of each of its runs.
        worker: the peer's process; None before the peer enters and after it has left.
        options: further options of the peer's task.
        bound: the largest accepted difference; None is the one for the precision, in ``BOUNDS``.
        environment: further environment variables of the peer's process.
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
        """The peer's version; None if the peer is not installed."""
        peer = peer_at(self.place)
        return None if peer.absent() else peer.version()

    def enter(self, task: Task) -> None:
        """Start the peer's process, load the model and run it once.

        If the peer is absent or does not answer, it leaves the race.

        Args:
            task: the task; the peer's own precision and options replace those in it.
        """
        if why := peer_at(self.place).absent():
            self.leave("skipped", why)
            return
        self.worker = Worker(self.place, task.threads, self.environment)
        self.loaded = self.ask(
            replace(task, precision=self.precision, options=self.options), Loaded
        )

    def agree(self, ours: Loaded) -> None:
        """Compare the peer's outputs with VTensor's; if they differ too much, the peer leaves.

        Args:
            ours: VTensor's answer, with its outputs.
        """
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
        """Send a request to the peer's process and return the answer, of the type ``wanted``.

        None if the process refuses, fails or does not answer; the peer then leaves the race.
        """
        assert self.worker is not None, "a contender that has left is not asked"
        try:
            return self.worker.ask(request, wanted, self.limit_s)
        except Gone as error:
            self.leave("failed" if error.failed else "skipped", str(error))
            return None

    def leave(self, status: Status, reason: str) -> None:
        """Set the peer's status and reason and end its process: it takes no further part."""
        self.status, self.reason = status, reason
        self.close()

    def close(self) -> None:
        """End the peer's process, if there is one."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None


def race(
    task: Task, peers: Mapping[str, str], settings: RaceSettings, advance: Advance
) -> list[Contender]:
    """Load the model in VTensor and in all peers, compare outputs with VTensor's, then time in
    turns.

    Args:
        task: the model and its inputs; the precision is that of the peers other than VTensor.
        peers: the places of the other peers, ``"package.module:Class"``, by name.
        settings: the settings of the race.
        advance: called with a text that says what happens next.

    Returns:
        The contenders: VTensor, VTensor in bf16 if peers compute in it, then the peers in order.
    """
    limit_s = settings.limit_s
    [ours] = [Contender(name, place, OUR_PRECISION, limit_s) for name, place in OURS.items()]
    narrow = [(NARROW_NAME, place) for place in OURS.values() if task.precision == NARROW]
    entries = [*narrow, *peers.items()]
    others = [Contender(name, place, task.precision, limit_s) for name, place in entries]
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
        take_turns([ours, *others], settings, advance)
        for contender in (ours, *others):
            if contender.worker:
                contender.finished = contender.ask(None, Finished)
    return [ours, *others]


def take_turns(contenders: Sequence[Contender], settings: RaceSettings, advance: Advance) -> None:
    """Run all rounds: in each, time the contenders that have not left, in a random order."""
    rng = np.random.default_rng(settings.seed)
    for number in range(settings.rounds):
        for place in rng.permutation(len(contenders)):
            contender = contenders[place]
            if contender.worker is None:
                continue
            advance(f"round {number + 1} of {settings.rounds}, {contender.peer}")
            if answer := contender.ask(settings.seconds / settings.rounds, Timed):
                contender.rounds.append(answer.seconds)
