"""Errors of approximate variants, measured on the network's own weights.

A run of the strict plan gives each node's inputs, on which the node then runs in its strict variant
and in approximate ones. Inputs of the network are seeded noise or the caller's arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ptensor.buffer import TensorStorage, fresh
from ptensor.encoding import Encoding
from ptensor.layout import Layout
from resolver.change import changed
from resolver.errors import Share, form_name
from resolver.lowered import LoweredGraph, OpNode
from vtensor.errors import VTensorError
from vtensor.language.dtype import numpy_dtype
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

#: The seed of the inputs on which errors of single nodes are measured, and the seeds of those for
#: whole plans.
SEED, WHOLE_SEEDS = 0, (1, 2, 3)


class Meter:
    """A meter of errors: it compares variants and whole lowered graphs with a strict lowered graph.

    Its attribute ``forms`` has the forms of all variants that were measured (``form_name``).

    Args:
        graph: the simplified graph.
        strict: the lowered graph without approximate variants, before any pass.
        observed: the names of the values at which errors are measured.
        calibrate: arrays for inputs, by name; missing ones get noise.
        workspace: the memory budget, the threads and the packed weights.
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
        self._node_inputs: dict[str, Array] = {}
        self._probes: dict[str, Probes] = {}
        self._expected: dict[int, dict[str, Array]] = {}
        self._known: dict[tuple[str, object], Share | None] = {}
        self._holds: dict[tuple[str, Encoding], bool] = {}
        self.forms: set[str] = set()
        self._direct: float | None = None

    def shares(self, nodes: Sequence[OpNode]) -> list[Share | None]:
        """Return, for each node in its variant, its share: what the variant adds to the error of
        the results.

        A share is None if the variant fails, or if its error or its amplification is unknown.
        """
        self.forms.update(form_name(node.variant) for node in nodes)
        asked = [node for node in nodes if self._key(node) not in self._known]
        if asked:
            names = {node.name for node in asked}
            self._measure_inputs(names)
            self._probe(names)
        by_node = dict[str, list[OpNode]]()
        for node in asked:
            by_node.setdefault(node.name, []).append(node)
        for name, variants in by_node.items():
            strict = self._node_results(self._nodes[name])
            for node in variants:
                self._known[self._key(node)] = self._share(node, strict)
        return [self._known[self._key(node)] for node in nodes]

    def gains(self, nodes: Sequence[OpNode]) -> list[float | None]:
        """Return the error amplification of each node; None if it cannot be measured."""
        self._probe({node.name for node in nodes})
        return [_gain(self._probes.get(node.name, ())) for node in nodes]

    def holds(self, name: str, encoding: Encoding) -> bool:
        """Return whether an encoding holds each element of the constant ``name`` exactly."""
        key = name, encoding
        if key not in self._holds:
            array = self._constants.get(name)
            self._holds[key] = array is not None and np.array_equal(
                array, array.astype(numpy_dtype(encoding.dtype)).astype(array.dtype)
            )
        return self._holds[key]

    def whole(self, lowered: LoweredGraph) -> float:
        """Return the largest error of a lowered graph's results, relative to the largest element.

        The inputs differ from those on which nodes were measured, unless the caller gave arrays.
        """
        plan = self._plan(_delivering(lowered, self._observed))
        return max(
            difference(self._strict_results(seed), self._run(plan, seed)) for seed in WHOLE_SEEDS
        )

    def direct(self, exact: Callable[[], LoweredGraph]) -> float:
        """Return the largest error of the results of a lowered graph that has no approximate
        variants.

        The error is measured at the first call; later calls return it again.

        Args:
            exact: makes that graph, whose kernels are chosen by measured times.
        """
        if self._direct is None:
            self._direct = self.whole(exact())
        return self._direct

    def _key(self, node: OpNode) -> tuple[str, object]:
        variant = node.variant
        return node.name, (variant.library, variant.kernel, variant.layouts, variant.followers)

    def _share(self, node: OpNode, strict: Mapping[str, Array] | None) -> Share | None:
        probes = self._probes.get(node.name, ())
        gain = _gain(probes) if strict is not None else None
        node_results = self._node_results(node) if gain is not None else None
        if node_results is None or strict is None or gain is None:
            return None
        trials = tuple(norms(strict[name], node_results[name]) for name in strict)
        error = max(relative(*trial) for trial in trials)
        if not np.isfinite(error * gain):
            return None
        return Share(node.name, node.variant.kernel, error, gain, trials, probes)

    def _node_results(self, node: OpNode) -> dict[str, Array] | None:
        """Return a node's results, by name, on its inputs from the strict plan.

        Returns None if the node's variant cannot be run.
        """
        try:
            plan = self._plan(_alone(self._strict.bare, self._nodes[node.name], node))
        except VTensorError:  # the library offered the variant but cannot compile it
            return None
        return self._results(
            plan, bound_memory(plan, {n: self._node_inputs[n] for n in plan.graph.inputs})
        )

    def _probe(self, names: Collection[str]) -> None:
        """Probe the nodes of these names that were not probed yet."""
        if more := {*names} - self._probes.keys():
            plan = self._plan(_delivering(self._strict, self._observed))
            self._probes |= dict.fromkeys(more, ()) | probed(plan, self._bindings(plan, SEED), more)

    def _measure_inputs(self, nodes: Collection[str]) -> None:
        """Note the inputs that nodes have in a run of the strict plan.

        Args:
            nodes: the names of the nodes.
        """
        bare = self._strict.bare
        read = {name for node in nodes for name in self._nodes[node].inputs}
        wanted = [n for n in read if not bare.values[n].constant and n not in self._node_inputs]
        if wanted:
            plan = self._plan(_delivering(self._strict, wanted))
            self._node_inputs |= self._run(plan, SEED)

    def _strict_results(self, seed: int) -> dict[str, Array]:
        if seed not in self._expected:
            plan = self._plan(_delivering(self._strict, self._observed))
            self._expected |= {
                fresh_seed: self._run(plan, fresh_seed) for fresh_seed in WHOLE_SEEDS
            }
        return self._expected[seed]

    def _plan(self, lowered: LoweredGraph) -> Plan:
        return plan_on_numbers(lowered, self._constants, self._workspace, confirming=True)

    def _run(self, plan: Plan, seed: int) -> dict[str, Array]:
        return self._results(plan, self._bindings(plan, seed))

    def _results(self, plan: Plan, memory: Sequence[Array]) -> dict[str, Array]:
        """Run a plan on the executor's thread and return its outputs, by name.

        If the calling thread ran the plan, OpenMP would start another team of kernel threads for
        it, and the threads of both teams would have to sleep while they wait for work.

        Args:
            plan: the plan.
            memory: the arrays that the run binds.
        """
        self._workspace.executor.run(partial(plan.replay, memory))
        return results(plan, memory)

    def _bindings(self, plan: Plan, seed: int) -> list[Array]:
        """Return the arrays that a run binds, with the caller's arrays or seeded noise as inputs.

        Args:
            plan: the plan.
            seed: the seed of the noise. The caller's arrays are used only for ``SEED`` and the
                first of ``WHOLE_SEEDS``; for other seeds all inputs are noise.
        """
        generator, feeds = np.random.default_rng(seed), dict[str, Array]()
        for name in plan.graph.inputs:
            value = plan.graph.values[name]
            shape = tuple(value.dims.values())
            feeds[name] = random_array(Port(name, value.dtype, shape, tuple(value.dims)), generator)
            array = self._calibrate.get(name)
            if array is not None and array.shape == shape and seed in (SEED, WHOLE_SEEDS[0]):
                feeds[name] = array
        return bound_memory(plan, feeds)


def _gain(probes: Probes) -> float | None:
    """Return the largest measured error amplification; None if a probe sent no error, or there is
    none.
    """
    if not probes or any(sent <= 0 for sent, _ in probes):
        return None
    return max(arrived / sent for sent, arrived in probes)


def bound_memory(plan: Plan, feeds: Mapping[str, Array]) -> list[Array]:
    """Return the arrays that a run binds: inputs in the plan's layouts, and memory for outputs.

    Args:
        plan: the plan.
        feeds: the inputs by name, with axes in the order of their dims.
    """
    rows = list[Array]()
    for name in plan.graph.inputs:
        value = plan.graph.values[name]
        tensor = VTensor(value.dtype, value.dims)
        storage = TensorStorage.of_array(feeds[name], tensor, value.layout, constant=False)
        rows.append(storage.buffer.memory)
    return [*rows, *map(fresh, plan.own_sizes)]


def _delivering(graph: LoweredGraph, names: Sequence[str]) -> LoweredGraph:
    """Return a lowered graph whose outputs are the values ``names``, each in the layout in which it
    is made.
    """
    delivery = dict.fromkeys(names, Layout.ANY)
    outputs = dict(zip(names, names, strict=True))
    return replace(graph, outputs=outputs, delivery=delivery, certificate=None)


def _alone(bare: LoweredGraph, strict: OpNode, node: OpNode) -> LoweredGraph:
    """Return a lowered graph of a single node. Its inputs and outputs are in the declared order of
    their dims.

    Args:
        bare: the strict lowered graph without Transforms.
        strict: the node in its strict variant.
        node: the node in the variant that the graph gets.
    """
    inputs = dict.fromkeys(name for name in strict.inputs if not bare.values[name].constant)
    values = {name: bare.values[name] for name in (*strict.inputs, *strict.outputs)}
    plain = {name: replace(values[name], layout=Layout.plain(values[name].dims)) for name in inputs}
    outputs = {name: name for name in strict.outputs}
    graph = replace(
        bare,
        values={**values, **plain},
        nodes=[strict],
        inputs=tuple(inputs),
        outputs=outputs,
        delivery={},
        certificate=None,
    )
    return changed(graph, {strict.name: node.variant})
