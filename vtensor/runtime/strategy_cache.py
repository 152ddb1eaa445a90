"""Strategies on disk: what one process chose for a network, the next one takes.

An entry is kept under two digests: what the network and the session have in common for all sizes,
then all that its own choice depends on. Sizes and parameters are in the second one, and the values
of small constants; those of weights are in neither, since nothing is chosen by them. A choice is
never trusted: libraries are asked whether they take it, and the checker looks at the plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from libdesc.registry import ready
from optimizer.pipeline import ASKING, PASSES
from resolver.lowered import LoweredGraph, OpNode
from resolver.stored import from_plain_data, plain_data
from resolver.strategy import Strategy, StrategyRefused
from vtensor import __version__
from vtensor.errors import VTensorError
from vtensor.isa import isa_cap
from vtensor.language.cached import cached_property
from vtensor.language.exact import exact
from vtensor.language.graph import Graph
from vtensor.language.imported import blake2b, logger
from vtensor.language.operators import info_of
from vtensor.language.records import dataclass, replace
from vtensor.runtime.burden import burden
from vtensor.runtime.entries import Entries, code_state
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.options import Options, kept_in
from vtensor.runtime.plan import Plan
from vtensor.runtime.planning import resolved_of, sound
from vtensor.runtime.processors import processor
from vtensor.runtime.programs import FIRST
from vtensor.runtime.strategies import KEPT
from vtensor.runtime.taken_over import Known
from vtensor.runtime.workspace import Workspace

if TYPE_CHECKING:
    from vtensor.frontends.beside import Place

#: Constants of up to so many elements may decide something: an invoker may look at them.
SMALL = 64

_log = logger(__name__)


@dataclass(frozen=True)
class Network:
    """What a plan is to be made of, for a cache.

    Args:
        key: what the plan is for.
        graph: simplified.
        options: how it is made.
        threads: how many it runs on.
        looked_at: where arrays of the model are at whose values somebody had looked by then; None
            where plans had been made, whose weights were packed: that looks at all of them.
    """

    key: PlanKey
    graph: Graph
    options: Options
    threads: int
    looked_at: frozenset[Place] | None = None

    @cached_property
    def alike(self) -> str:
        """A digest of what it has in common with itself in other sizes."""
        settings, graph = self.options.settings, self.graph
        told = (
            *(code_state(), __version__, processor(), isa_cap(), self.threads),
            sorted(one.name for one in ready().libraries.values() if not one.absent),
            *(self.options.passes, self.options.preferences),
            *(settings.objective, settings.solver, settings.clock is None, settings.speeds is None),
            *(sorted(self.options.delivery.items()), self.key.kind, self.options.tolerance),
            *(graph.inputs, graph.outputs, graph.passes, graph.merged),
            [(name, one.dtype, [*one.dims]) for name, one in graph.values.items()],
            [
                (one.name, info_of(one.op).name, one.inputs, one.outputs)
                for one in graph.nodes.values()
            ],
            [(name, [one.name for one in rows]) for name, rows in graph.offers.items()],
        )
        return _digest(told)

    @cached_property
    def exact(self) -> str:
        """A digest of all that is chosen by."""
        graph, small = self.graph, {}
        for name in graph.constants:
            if np.prod([*graph.values[name].dims.values()]) <= SMALL:
                small[name] = graph.constants[name].tobytes()
        told = (
            *(self.alike, self.key, small),
            [one.summary() for one in graph.values.values()],
            [exact(one.op) for one in graph.nodes.values()],
        )
        return _digest(told)

    @property
    def name(self) -> str:
        """The name of its own entry."""
        return f"{self.alike}-{self.exact}"

    @property
    def ahead(self) -> str:
        """The name of the entry of what was chosen for it ahead of any run."""
        return f"ahead-{self.name}"

    @property
    def first(self) -> str:
        """The name of the entry of its provisional plan."""
        return f"{FIRST}{self.name}"


class Found(NamedTuple):
    """A plan from a cache, and what other sizes may take of it."""

    plan: Plan
    known: Known


class StrategyCache:
    """Strategies in a folder.

    Args:
        entries: the folder.
    """

    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    @classmethod
    def of(cls, options: Options) -> StrategyCache | None:
        """That of a session; None where its plans are not kept."""
        entries = kept_in(options)
        return None if entries is None else cls(entries)

    def plan(
        self, network: Network, workspace: Workspace, payload: bytes | None = None
    ) -> Found | None:
        """A plan as it was chosen for exactly this; None where nothing was, or it is not sound.

        Where the session takes such, it may be a provisional one.

        Args:
            network, workspace: what it is made of, and what it shares with others.
            payload: what its entry holds, where somebody has read that.
        """
        graph, options = network.graph, network.options
        found = self._read(network.name, payload)
        provisional = found is None and options.first is not None
        if provisional:
            found = self._read(network.first, payload)
        if found is None:
            return None
        try:
            chosen, _, part = self._chosen(found, network)
            if provisional and found.get("asked") is not True:
                passes = tuple(name for name in chosen.passes if name not in ASKING)
                chosen = replace(chosen, passes=passes)
            lowered = replace(Strategy(chosen).on(graph), certificate=chosen.certificate)
            sound(lowered, graph, options, workspace)
            plan = Plan(
                lowered,
                graph.constants,
                workspace,
                options.progress,
                options.preferences,
                partial(resolved_of, graph, options),
                confirming=True,
            )
        except (StrategyRefused, VTensorError) as why:
            _log.warning("%s: what the cache has for it is not taken: %s", graph.name, why)
            return None
        plan.provisional, plan.origin = provisional, replace(plan.origin, cached=True)
        known = Known(Strategy.of(lowered), network.key, part, False, provisional, cached=True)
        return Found(plan, known)

    def known(self, network: Network) -> Known | None:
        """What was chosen for exactly this; a provisional choice where there is no other."""
        for name in (network.name, network.first):
            try:
                chosen, key, part = self._chosen(self._read(name), network)
            except StrategyRefused as why:
                _log.debug("%s: %s: %s", network.graph.name, name, why)
                continue
            provisional = name == network.first
            return Known(Strategy.of(chosen), key, part, False, provisional, cached=True)
        return None

    def others(self, network: Network) -> Iterator[Known]:
        """What was chosen for other sizes, the last used first; provisional choices, where the
        session takes such, if there are no others.
        """
        found = self._others(network, "")
        yield from found or (self._others(network, FIRST) if network.options.first else ())

    def _others(self, network: Network, first: str) -> list[Known]:
        """Those of entries with such names."""
        names, found = self._entries.names(f"{first}{network.alike}-"), list[Known]()
        for name in [one for one in names if one not in (network.name, network.first)][:KEPT]:
            try:
                chosen, key, part = self._chosen(self._read(name), network)
            except StrategyRefused as why:
                _log.debug("%s: %s: %s", network.graph.name, name, why)
                continue
            if key != network.key:
                about = Strategy.of(chosen), key, part, False, bool(first)
                found.append(Known(*about, cached=True))
        return found

    def beside(self, network: Network, payload: bytes) -> Known | None:
        """What an entry says that was chosen for other sizes; None where it says nothing here."""
        try:
            data = json.loads(payload)
            provisional = str(data["name"]).startswith(FIRST)
            chosen, key, part = self._chosen(data, network)
        except (StrategyRefused, ValueError, LookupError, TypeError, RecursionError) as why:
            _log.debug("%s: %s", network.graph.name, why)
            return None
        return Known(Strategy.of(chosen), key, part, False, provisional, cached=True)

    def foreseen(self, network: Network) -> Known | None:
        """What was chosen for exactly this ahead of any run; None where nothing was."""
        try:
            chosen, key, part = self._chosen(self._read(network.ahead), network)
        except StrategyRefused as why:
            _log.debug("%s: %s", network.graph.name, why)
            return None
        known = Known(Strategy.of(chosen), key, part, foreseen=True, cached=True)
        return known if key == network.key else None

    def keep(self, network: Network, chosen: LoweredGraph, name: str = "") -> None:
        """Keep what was chosen; not where the solver failed, which may do better.

        Args:
            network: what it was chosen for.
            chosen: of a plan; or ahead of any run, for which less may do than for a plan.
            name: of the entry; empty is the network's own.
        """
        certificate, name = chosen.certificate, name or network.name
        if certificate is not None and certificate.status.startswith("failed"):
            return
        self._entries.write(name, self.payload(network, chosen, name))

    @staticmethod
    def payload(network: Network, chosen: LoweredGraph, name: str) -> bytes:
        """What an entry holds; arguments as for ``keep``."""
        data = {
            "name": name,
            "inputs": [
                (one.name, one.shape, None if one.value is None else one.value.hex())
                for one in network.key.inputs
            ],
            "versions": _versions(chosen),
            "burden": burden(chosen, network.options),
            "asked": any(name in ASKING for name in chosen.passes),
            "chosen": plain_data(chosen),
        }
        return json.dumps(data, separators=(",", ":")).encode()

    def _read(self, name: str, payload: bytes | None = None) -> dict[str, Any] | None:
        """What an entry holds, if that was written under its name."""
        payload = self._entries.read(name) if payload is None else payload
        if payload is None:
            return None
        try:
            data = json.loads(payload)
        except (ValueError, RecursionError):
            return None
        return data if isinstance(data, dict) and data.get("name") == name else None

    def _chosen(
        self, data: dict[str, Any] | None, network: Network
    ) -> tuple[LoweredGraph, PlanKey, float]:
        """What an entry says: a choice, what it was for, and what Transforms took there.

        Raises:
            StrategyRefused: it is no entry for this network.
        """
        options, graph = network.options, network.graph
        if data is None:
            raise StrategyRefused("there is no such entry")
        try:
            key, part = _key(data["inputs"], network.key), float(data["burden"])
        except (LookupError, TypeError, ValueError, AttributeError) as why:
            raise StrategyRefused(f"it does not say what it is for: {why!r}") from why
        passes = (*graph.passes, *(name for name in options.passes if name in PASSES))
        chosen = from_plain_data(
            data.get("chosen"), graph, options.delivery, options.preferences, passes
        )
        if data.get("versions") != _versions(chosen):
            raise StrategyRefused("its libraries were others")
        return chosen, key, part


def _versions(graph: LoweredGraph) -> dict[str, str]:
    """The libraries that a graph runs on; others need not be loaded to say their versions.

    Raises:
        StrategyRefused: one is not there.
    """
    known, found = ready().libraries, dict[str, str]()
    for node in graph.nodes:
        name = node.variant.library if isinstance(node, OpNode) else node.library
        if name not in known or known[name].absent:
            raise StrategyRefused(f"there is no library {name}")
        if name not in found:
            found[name] = known[name].version()
    return found


def _key(rows: list[Any], like: PlanKey) -> PlanKey:
    """What plans were made for that differ in shapes, and in values that decide them."""
    inputs = []
    for own, (name, shape, value) in zip(like.inputs, rows, strict=True):
        if name != own.name or len(shape) != len(own.shape):
            raise ValueError(f"no input {name!r} of rank {len(shape)}")
        known = None if value is None else bytes.fromhex(value)
        inputs.append(replace(own, shape=tuple(map(int, shape)), value=known))
    return replace(like, inputs=tuple(inputs))


def _digest(told: object) -> str:
    return blake2b(repr(told).encode(), digest_size=16).hexdigest()
