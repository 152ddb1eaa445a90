"""VTensor with some options, as a peer."""

from __future__ import annotations

from collections.abc import Mapping

from eval.mixes import BY_PRIORITY, mixes
from vtensor.benchmark.ours import VTensor
from vtensor.benchmark.peer import Task


class Level(VTensor):
    """A session with these entries of ``Task.options``.

    - ``mix``: the name of a mix in ``eval/mixes.py``; ``priority`` is a session's default.
    - ``optimize``: the session's level of optimisation.
    - ``limits``: whether convolutions and products are also timed alone, as lower bounds of a run.
    - ``told``: further options of the session.
    """

    def load(self, task: Task) -> None:
        from vtensor.runtime.session import Session

        mix = {"priority": BY_PRIORITY, **mixes()}[task.options["mix"]]
        self._limited = bool(task.options.get("limits"))
        self._feeds = task.feeds
        self._session = Session(
            task.model,
            threads=task.threads,
            optimize=task.options["optimize"],
            **mix._asdict(),
            deterministic=True,
            **task.options.get("told", {}),
        )

    def limits(self) -> Mapping[str, float]:
        return super().limits() if self._limited else {}
