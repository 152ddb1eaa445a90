"""VTensor at one level of optimisation, and the layout-aware baseline, as peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from eval.mixes import BY_PRIORITY, mixes
from vtensor import limit_isa, load_onnx
from vtensor.benchmark.ours import VTensor
from vtensor.benchmark.peer import Array, Peer, Task

#: The layout-aware operators, whose networks convert inside operators.
BASELINE = "eval.layout_aware"


def baseline_is() -> str:
    """What stands for the baseline: its own operators, or the resolver's mode that does as they."""
    return "eval/layout_aware" if find_spec(BASELINE) else 'optimize=["aware"]'


class Level(VTensor):
    """A session; the task's options say how.

    Options:
        cap: on the instruction set.
        mix: of libraries, by its name in ``eval/mixes.py``; ``priority`` is what a session does by
            itself.
        optimize: the session's.
        limits: also say how fast its convolutions and products alone are.
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
        )

    def limits(self) -> Mapping[str, float]:
        return super().limits() if self._limited else {}


class LayoutAware(Peer):
    """A network of operators that convert by themselves; options as for ``Level``."""

    distribution = VTensor.distribution

    def load(self, task: Task) -> None:
        mix = mix_of(task)
        self._feeds = task.feeds
        module: Any = import_module(BASELINE)
        graph = load_onnx(task.model)
        self._network = module.Network(graph, libraries=mix, threads=task.threads)

    def run(self) -> Sequence[Array]:
        made: Sequence[Array] = self._network.run(self._feeds)
        return made

    def conversions(self) -> int:
        found = self._network.conversions
        return found if isinstance(found, int) else len(found)


def mix_of(task: Task) -> Any:
    """The mix of a task's options, once the instruction set is capped as they say."""
    if (cap := task.options.get("cap", "max")) != "max":
        limit_isa(cap)
    return {"priority": BY_PRIORITY, **mixes()}[task.options["mix"]]
