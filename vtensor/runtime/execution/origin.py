"""The origin of a plan."""

from __future__ import annotations

from typing import Literal

from vtensor.language.records import dataclass

#: The ways to a plan, as ``Origin`` explains them.
Way = Literal["locked", "in memory", "specialised", "planned", "recorded on sizes"]


@dataclass(frozen=True)
class Origin:
    """The way in which a session came to the plan of its last run: ``session.plan.origin``.

    Attributes:
        way: one of

            - ``"locked"``: the session's lock file fixes the plan;
            - ``"in memory"``: an earlier run of the session, or a binding, used this plan already;
            - ``"specialised"``: a symbolic plan was evaluated for these sizes;
            - ``"planned"``: the planner made or reused a choice and recorded it;
            - ``"recorded on sizes"``: as ``"planned"``, but the network cannot be traced, for
              instance since a step calls back into Python: each combination of sizes is recorded
              by itself.
        cached: the symbolic plan, or the planner's choice, was read from the cache on disk.

    >>> from ops import Relu
    >>> from vtensor import Graph, Session
    >>> import numpy as np
    >>> g = Graph("tiny")
    >>> g.output(g.add(Relu(), g.input("x", {"N": 1, "C": 2})), "y")
    >>> x = np.array([[-1, 2]], np.float32)
    >>> with Session(g, libraries=["eigen"], cache_dir=None) as session:
    ...     for _ in range(2):
    ...         y = session.run(None, {"x": x})
    ...         print(session.plan.origin)
    planned
    in memory
    """

    way: Way
    cached: bool = False

    def __str__(self) -> str:
        return f"{self.way}, read from the cache" if self.cached else self.way


IN_MEMORY = Origin("in memory")
LOCKED = Origin("locked")
PLANNED = Origin("planned")
RECORDED_ON_SIZES = Origin("recorded on sizes")
SPECIALISED = Origin("specialised")
