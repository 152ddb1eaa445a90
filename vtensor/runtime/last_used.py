"""The plans that a session used last, each by what it was made for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from vtensor.language.forks import process_lock
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.plan import Plan

if TYPE_CHECKING:
    from vtensor.runtime.strategy_cache import Network

#: Guards what sessions keep, for moments; whoever has it takes no other lock.
keeping = process_lock(2)


class MadeOf(NamedTuple):
    """What a plan was made of.

    Attributes:
        key: what it is for.
        network: makes that.
        own: it was chosen for its own sizes.
    """

    key: PlanKey
    network: Callable[[], Network]
    own: bool


class LastUsed:
    """The last used plans. Any thread may ask; who makes plans, or exchanges them, changes them.

    Attributes:
        networks: what plans that may be exchanged were made of: the better one is kept on disk.
    """

    def __init__(self) -> None:
        #: By key, the last used one is last. An ``OrderedDict`` would make a ``KeyError`` of what a
        #: signal's handler raises while a key is hashed.
        self._plans: dict[PlanKey, Plan] = {}
        #: Plans that others took the place of, as long as somebody has them.
        self._exchanged: WeakKeyDictionary[Plan, PlanKey] = WeakKeyDictionary()
        self.networks: dict[PlanKey, Callable[[], Network]] = {}

    def __len__(self) -> int:
        return len(self._plans)

    def get(self, key: PlanKey) -> Plan | None:
        """The plan for this, if it is kept; that is no use of it."""
        with keeping:
            return self._plans.get(key)

    def use(self, key: PlanKey) -> Plan | None:
        """The plan for this, if it is kept: it is the last used one now."""
        with keeping:
            plan = self._plans.pop(key, None)
            if plan is not None:
                self._plans[key] = plan
        return plan

    def keep(self, key: PlanKey, plan: Plan, most: int) -> list[Plan]:
        """Keep a plan, and at most ``most`` in all; return those that were dropped for it."""
        dropped: list[Plan] = []  # freed after the lock is
        with keeping:
            self._plans[key] = plan
            while len(self._plans) > most:
                oldest = next(iter(self._plans))
                dropped.append(self._plans.pop(oldest))
                self.networks.pop(oldest, None)
        return dropped

    def exchange(self, key: PlanKey, old: Plan, new: Plan) -> Callable[[], Network] | None:
        """Put a plan in the place of another one, if that is kept; what that was made of, which
        stays at hand where the new one may be exchanged in its turn.
        """
        with keeping:
            network, known = self.networks.get(key), self._plans.get(key) is old
            if known:
                self._plans[key] = new
                if new is not old:
                    self._exchanged[old] = key
            if known and new.better is None:
                self.networks.pop(key, None)
        return network

    def key_of(self, plan: Plan) -> PlanKey | None:
        """What a plan was made for; None where it is kept no longer."""
        with keeping:
            found = next((key for key, one in self._plans.items() if one is plan), None)
            return found or self._exchanged.get(plan)

    def made_of(self) -> MadeOf | None:
        """What the first of those was made of that may be exchanged."""
        with keeping:
            for key, network in [*self.networks.items()]:  # who makes a plan may add one
                if (plan := self._plans.get(key)) is not None:
                    return MadeOf(key, network, plan.taken_from is None)
        return None

    def clear(self) -> list[Plan]:
        """Keep none of them; those that there were."""
        with keeping:
            plans = [*self._plans.values()]
            self._plans, self.networks = {}, {}
        return plans
