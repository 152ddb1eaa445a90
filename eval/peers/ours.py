"""VTensor at one level of optimisation, and the layout-aware baseline, as peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eval.layout_aware import Network
from eval.mixes import BY_PRIORITY, mixes
from vtensor import limit_isa, load_onnx
from vtensor.benchmark.ours import VTensor
from vtensor.benchmark.peer import Array, Peer, Task


class Level(VTensor):
    """A session with these entries of ``Task.options``.

    - ``cap``: the cap on the instruction set; ``max`` is none.
    - ``mix``: the name of a mix in ``eval/mixes.py``; ``priority`` is a session's default.
    - ``optimize``: the session's level of optimisation.
    - ``limits``: whether convolutions and products are also timed alone, as lower bounds of a run.
    - ``told``: further options of the session.
    """

    def load(self, task: Task) -> None:
        from vtensor.runtime.session import Session

        mix = mix_of(task)
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


class LayoutAware(Peer):
    """A network of layout-aware operators; its options are ``cap`` and ``mix`` of ``Level``."""

    distribution = VTensor.distribution

    def load(self, task: Task) -> None:
        mix = mix_of(task)
        self._feeds = task.feeds
        self._network = Network(load_onnx(task.model), mix, task.threads)

    def run(self) -> Sequence[Array]:
        return self._network.run(self._feeds)

    def conversions(self) -> int:
        return self._network.conversions[0]


def mix_of(task: Task) -> Any:
    """Return the ``Mix`` that a task's options name; first cap the instruction set as they say."""
    if (cap := task.options.get("cap", "max")) != "max":
        limit_isa(cap)
    return {"priority": BY_PRIORITY, **mixes()}[task.options["mix"]]
