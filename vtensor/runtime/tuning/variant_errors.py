"""How far results are off in inexact variants, measured on the network's own weights.

The strict plan gives each node the inputs that it has in a run; on those the node runs in its
strict variant and in others. Inputs of the network are seeded noise, or what the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ptensor.buffer import TensorStorage, fresh
from ptensor.layout import Layout
from resolver.change import changed
from resolver.errors import Share
from resolver.lowered import LoweredGraph, OpNode
from vtensor.errors import VTensorError
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.recording.on_numbers import plan_on_numbers
from vtensor.runtime.recording.workspace import Workspace
from vtensor.runtime.tuning.error_amplification import (
    Probes,
    difference,
    norms,
    probed,
    relative,
    results,
)
from vtensor.storage.inputs import Array, Port, random_array

#: Which seed errors of nodes are measured with, and which whole plans are compared with.
SEED, FRESH = 0, (1, 2, 3)


class Meter:
    """Measures errors against a strict graph.

    Args:
        graph: the network, as it is planned.
        strict: its lowered graph without inexact variants, before any pass.
        observed: the values at which errors count.
        calibrate: arrays for inputs, by name; the others get noise.
        workspace: what has the memory budget, the threads and the packed weights.
    """

    def __init__(
        self,
        graph: Graph,
        strict: LoweredGraph,
        observed: Sequence[str],
        calibrate: Mapping[str, Array],
        workspace: Workspace,
    ) -> None:
        self._constants = graph.constants
        self._strict, self._observed = strict, tuple(observed)
        self._calibrate = calibrate
        self._workspace = Workspace(
            workspace.executor, workspace.max_bytes, weights=workspace.weights
        )
        self._nodes = {node.name: node for node in strict.bare.operators}
        self._given: dict[str, Array] = {}
        self._probes: dict[str, Probes] = {}
        self._expected: dict[int, dict[str, Array]] = {}
        self._known: dict[tuple[str, object], Share | None] = {}
        self._direct: float | None = None

    def shares(self, nodes: Sequence[OpNode]) -> list[Share | None]:
        """What each adds in its variant; None where it fails, or its error or gain is unknown."""
        asked = [node for node in nodes if self._key(node) not in self._known]
        if asked:
            names = {node.name for node in asked}
            self._give(names)
            if more := names - self._probes.keys():
                plan = self._plan(_delivering(self._strict, self._observed))
                self._probes |= probed(plan, self._bindings(plan, SEED), more)
        by_node = dict[str, list[OpNode]]()
        for node in asked:
            by_node.setdefault(node.name, []).append(node)
        for name, several in by_node.items():
            strict = self._answers(self._nodes[name])
            for node in several:
                self._known[self._key(node)] = self._share(node, strict)
        return [self._known[self._key(node)] for node in nodes]

    def whole(self, lowered: LoweredGraph) -> float:
        """The largest error of a whole graph, on inputs that nothing was measured on."""
        plan = self._plan(_delivering(lowered, self._observed))
        return max(difference(self._strictly(seed), self._run(plan, seed)) for seed in FRESH)

    def direct(self, exact: Callable[[], LoweredGraph]) -> float:
        """The error of a whole graph that has no inexact variant, but kernels by measured times."""
        if self._direct is None:
            self._direct = self.whole(exact())
        return self._direct

    def _key(self, node: OpNode) -> tuple[str, object]:
        variant = node.variant
        return node.name, (variant.library, variant.kernel, variant.layouts, variant.followers)

    def _share(self, node: OpNode, strict: Mapping[str, Array] | None) -> Share | None:
        probes = self._probes.get(node.name, ())
        made = self._answers(node) if probes and strict is not None else None
        if made is None or strict is None or any(sent <= 0 for sent, _ in probes):
            return None
        trials = tuple(norms(strict[name], made[name]) for name in strict)
        error = max(relative(*one) for one in trials)
        gain = max(arrived / sent for sent, arrived in probes)
        if not np.isfinite(error * gain):
            return None
        return Share(node.name, node.variant.kernel, error, gain, trials, probes)

    def _answers(self, node: OpNode) -> dict[str, Array] | None:
        """The results of a node in its variant on what it reads in the strict plan."""
        try:
            plan = self._plan(_alone(self._strict.bare, self._nodes[node.name], node))
        except VTensorError:  # a variant that a library likes until it makes it
            return None
        return self._results(
            plan, bound_memory(plan, {n: self._given[n] for n in plan.graph.inputs})
        )

    def _give(self, nodes: Collection[str]) -> None:
        """Have what these nodes read in a run of the strict plan."""
        bare = self._strict.bare
        read = {name for node in nodes for name in self._nodes[node].inputs}
        wanted = [n for n in read if not bare.values[n].constant and n not in self._given]
        if wanted:
            plan = self._plan(_delivering(self._strict, wanted))
            self._given |= self._run(plan, SEED)

    def _strictly(self, seed: int) -> dict[str, Array]:
        if seed not in self._expected:
            plan = self._plan(_delivering(self._strict, self._observed))
            self._expected |= {one: self._run(plan, one) for one in FRESH}
        return self._expected[seed]

    def _plan(self, lowered: LoweredGraph) -> Plan:
        return plan_on_numbers(lowered, self._constants, self._workspace, confirming=True)

    def _run(self, plan: Plan, seed: int) -> dict[str, Array]:
        return self._results(plan, self._bindings(plan, seed))

    def _results(self, plan: Plan, memory: Sequence[Array]) -> dict[str, Array]:
        """What a run answers, on the executor's thread: one that ran often here would have kernel
        threads of its own, which stay, and none of both would then wait for work without sleeping.
        """
        self._workspace.executor.run(partial(plan.replay, memory))
        return results(plan, memory)

    def _bindings(self, plan: Plan, seed: int) -> list[Array]:
        """Memory of a run: inputs as they were given, or noise of a seed.

        What was given is given to the first of those that compare whole plans, too.
        """
        generator, feeds = np.random.default_rng(seed), dict[str, Array]()
        for name in plan.graph.inputs:
            value = plan.graph.values[name]
            shape = tuple(value.dims.values())
            feeds[name] = random_array(Port(name, value.dtype, shape, tuple(value.dims)), generator)
            own = self._calibrate.get(name)
            if own is not None and own.shape == shape and seed in (SEED, FRESH[0]):
                feeds[name] = own
        return bound_memory(plan, feeds)


def bound_memory(plan: Plan, feeds: Mapping[str, Array]) -> list[Array]:
    """What a run of a plan binds: inputs as they lie there, and room for outputs."""
    rows = list[Array]()
    for name in plan.graph.inputs:
        value = plan.graph.values[name]
        tensor = VTensor(value.dtype, value.dims)
        storage = TensorStorage.of_array(feeds[name], tensor, value.layout, constant=False)
        rows.append(storage.buffer.memory)
    return [*rows, *map(fresh, plan.own_sizes)]


def _delivering(graph: LoweredGraph, names: Sequence[str]) -> LoweredGraph:
    """A graph that delivers other values, as they lie."""
    anyhow = dict.fromkeys(names, Layout.ANY)
    outputs = dict(zip(names, names, strict=True))
    return replace(graph, outputs=outputs, delivery=anyhow, certificate=None)


def _alone(bare: LoweredGraph, strict: OpNode, node: OpNode) -> LoweredGraph:
    """A graph of one node in a variant, whose inputs and outputs lie in declared order."""
    inputs = dict.fromkeys(name for name in strict.inputs if not bare.values[name].constant)
    values = {name: bare.values[name] for name in (*strict.inputs, *strict.outputs)}
    plain = {name: replace(values[name], layout=Layout.plain(values[name].dims)) for name in inputs}
    outputs = {name: name for name in strict.outputs}
    own = replace(
        bare,
        values={**values, **plain},
        nodes=[strict],
        inputs=tuple(inputs),
        outputs=outputs,
        delivery={},
        certificate=None,
    )
    return changed(own, {strict.name: node.variant})
