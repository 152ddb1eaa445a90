"""VTensor as a peer of the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from vtensor.benchmark.peer import Array, Peer, Task
from vtensor.errors import PeerError


class VTensor(Peer):
    """A session of VTensor on the task's model."""

    distribution = "vtensor-layouts"

    def load(self, task: Task) -> None:
        from vtensor.runtime.planning.tolerance import has_instructions
        from vtensor.runtime.session import Session

        if task.precision == "bf16" and not has_instructions("bf16"):
            raise PeerError("this processor has no instructions for bf16")
        self._feeds = task.feeds
        self._session = Session(
            task.model,
            threads=task.threads,
            hint=task.hint,
            deterministic=True,
            precision="f32" if task.precision == "default" else task.precision,
        )

    def run(self) -> Sequence[Array]:
        return self._session.run(None, self._feeds)

    def callers(self) -> Sequence[Callable[[], object]]:
        """Return a list that has the function that runs the session once for each of its streams.

        A session can run as many times at once as it has streams.
        """
        return [self.run] * self._session.streams

    def conversions(self) -> int:
        return len(self._session.conversions)

    def python_steps(self) -> int:
        return sum(step.python for step in self._session.plan.steps)

    def limits(self) -> Mapping[str, float]:
        """Return the seconds that the convolutions and matrix products of a run take without other
        nodes.

        ``warm`` is the sum of their times, each measured in a warm cache. ``chain`` is the time of
        all of them one after another. Empty if the network has no such node.
        """
        from vtensor.runtime.tuning.limits import limits

        measured = limits(self._session)
        if not measured.nodes:
            return {}
        return {"warm": measured.warm_ns / 1e9, "chain": measured.chain_ns / 1e9}
