"""The joint choice: which library has a node, with how many followers, and what is proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from libdesc.preferences import Preferences
from libdesc.transforms import LayoutChange
from libdesc.winograd import native
from ops import BiasAdd, Conv2D, DepthwiseConv2D, Mean, Relu, Softmax
from optimizer import joint as joint_module
from optimizer.choice.candidates import other_libraries
from optimizer.choice.elsewhere import FurtherVariants
from optimizer.choice.estimate import REFERENCE, Estimate
from optimizer.choice.ilp import choose
from optimizer.choice.problem import Probing, Problem
from optimizer.joint import MARGIN, SAMPLES, joint, timed_variants
from optimizer.pipeline import optimise, simplify
from optimizer.settings import Settings
from ptensor.evaluation import Basis, Variant
from ptensor.layout import Layout
from resolver.change import changed
from resolver.evaluate import resolve
from resolver.explain import explain_node
from resolver.extend import extend
from resolver.lowered import LoweredGraph, OpNode
from tests.optimizer.clocks import Drawn
from tests.optimizer.graphs import compared
from tests.resolver.networks import checked
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor


def tail() -> Graph:
    """What ends a network: channels last, means of images, a softmax."""
    random = np.random.default_rng(1)
    g = Graph("tail")
    x = g.input("x", {"N": 1, "C": 32, "H": 32, "W": 32})
    w = g.constant(random.normal(size=(256, 32, 3, 3)).astype(np.float32), "O I h w")
    y = g.add(Conv2D(pads=(1, 1, 1, 1)), x, w, name="conv")
    b = g.constant(random.normal(size=256).astype(np.float32), "C")
    y = g.add(Relu(), g.add(BiasAdd(), y, b, name="bias"), name="relu")
    g.output(g.add(Softmax(("C",)), g.add(Mean(("H", "W")), y, name="mean")), "y")
    return g.seal()


def relus(*rows: int) -> Graph:
    """A network of nodes that have nothing to do with one another."""
    g = Graph("several")
    for place, size in enumerate(rows):
        x = g.input(f"x{place}", {"N": size, "C": 800})
        g.output(g.add(Relu(), x, name=f"relu{place}" if place else "relu"), f"y{place}")
    return g.seal()


def lowered(graph: Graph, preferences: Preferences | None = None) -> tuple[LoweredGraph, Graph]:
    """The resolver's graph, with what may be fused, and the network that it is of."""
    simple = simplify(graph, "all", preferences or Preferences())
    return extend(resolve(simple, preferences=preferences or Preferences())), simple


def libraries(graph: LoweredGraph) -> dict[str, str]:
    return {node.name: node.variant.library for node in graph.operators}


def test_another_library_saves_a_transform() -> None:
    """Means of images that lie channels last: the first library would have them converted."""
    resolved, source = lowered(tail())
    if not any(resolved.transforms()):
        pytest.skip("the first library takes them as they lie here")
    assert set(libraries(resolved).values()) == {"onednn"}
    plan = checked(joint(resolved, Settings()), source)
    assert libraries(plan) == libraries(resolved) | {"mean": "eigen"}
    assert sum(1 for _ in plan.transforms()) < sum(1 for _ in resolved.transforms())
    declined = explain_node(plan, "mean")["declined"]
    assert "the plan takes less time with eigen, by estimate" in declined[-1]["reason"]
    certificate = plan.certificate
    assert certificate is not None
    assert (certificate.costs, certificate.status) == ("declared ns", "optimal")
    assert certificate.ns_after < certificate.ns_before  # type: ignore[operator]


ORDERED, PINNED = Preferences(order=("onednn", "eigen")), Preferences(operators={"Mean": "onednn"})


@pytest.mark.parametrize(
    ("preferences", "settings", "costs"),
    [
        (ORDERED, Settings(), None),
        (PINNED, Settings(), None),
        (None, Settings("shared"), "bytes"),
        (None, Settings("paper"), "edges"),
    ],
    ids=["order", "pin", "shared", "paper"],
)
def test_a_library_stays_where_it_is_prescribed_or_time_is_not_asked_for(
    preferences: Preferences | None, settings: Settings, costs: str | None
) -> None:
    resolved, source = lowered(tail(), preferences)
    plan = checked(joint(resolved, settings), source)
    assert libraries(plan) == libraries(resolved)
    assert costs is None or (plan.certificate and plan.certificate.costs) == costs


def test_nothing_is_sought_where_nothing_is_to_be_gained(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved, _ = lowered(relus(1))
    monkeypatch.setattr("optimizer.joint.timed_variants", None)
    plan = joint(resolved, Settings())
    assert (str(plan), plan.certificate.solver) == (str(resolved), "none")  # type: ignore[union-attr]


def test_reference_code_is_left_for_another_library() -> None:
    """Told that a kernel is reference code, the plan has the node elsewhere; else it stays."""
    resolved, source = lowered(relus(64))
    [node] = resolved.operators
    slow = replace(node, variant=replace(node.variant, reference=True))
    spoilt = replace(resolved, nodes=[slow])
    clock = Estimate()
    assert clock.node(slow, spoilt.tensors) == REFERENCE * clock.node(node, resolved.tensors)
    assert libraries(checked(joint(spoilt, Settings()), source)) == {"relu": "eigen"}


@dataclass(frozen=True)
class Timed(Probing):
    """Says of nodes what it is told to, by library; ``asked`` counts."""

    ns: Mapping[str, int]
    transforms: int | None = None
    asked: Counter[str] = field(default_factory=Counter)
    basis: Basis = "measured"

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int | None:
        self.asked[node.variant.library] += 1
        return self.ns.get(node.variant.library)

    def transform(self, value: VTensor, change: LayoutChange) -> int | None:
        assert self.transforms is not None, "is never asked"
        return self.transforms

    def save(self) -> None:
        self.asked["kept"] += 1


@pytest.mark.parametrize(
    ("own", "other", "library"),
    [(10**9, 10**6, "eigen"), (10**9, 2 * 10**9, "onednn"), (1, 0, "onednn")],
    ids=["far from its estimate", "no other is better", "as estimated"],
)
def test_a_kernel_far_from_its_estimate_is_compared(own: int, other: int, library: str) -> None:
    resolved, source = lowered(relus(1000))
    probe = Timed({"onednn": own, "eigen": other})
    plan = checked(joint(resolved, Settings(probe=probe)), source)
    assert libraries(plan) == {"relu": library}
    assert bool(probe.asked["eigen"]) == (own > 1)
    assert probe.asked["kept"] == 1


@dataclass
class Slow(Probing):
    """Some nodes take twice what is expected of them, all others what is; ``asked`` counts."""

    slow: frozenset[int]
    asked: Counter[int] = field(default_factory=Counter)
    basis: Basis = "measured"

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int:
        size = values[node.outputs[0]].size("N")
        self.asked[size] += 1
        return Estimate().node(node, values) * (2 if size in self.slow else 1)

    def transform(self, value: VTensor, change: LayoutChange) -> int | None:
        raise AssertionError("is never asked")

    def save(self) -> None: ...


@pytest.mark.parametrize(
    ("rows", "measured"),
    [((1000, 50_000), True), ((1000, 200_000), False), ((1000, 1000, 1000, 200_000), True)],
    ids=["it may gain", "it may not", "as many as it has equals"],
)
def test_variants_are_measured_where_they_may_gain(rows: tuple[int, ...], measured: bool) -> None:
    probe = Slow(frozenset({1000}))
    joint(lowered(relus(*rows))[0], Settings(probe=probe))
    assert (probe.asked[1000] > 1) == measured
    assert probe.asked[rows[-1]] == 1


def test_what_takes_a_little_of_a_network_is_not_probed() -> None:
    probe = Slow(frozenset({1000}))
    joint(lowered(relus(1000, 2_000_000))[0], Settings(probe=probe))
    assert probe.asked == {2_000_000: 1}
    resolved, source = lowered(relus(1))
    timed = Timed({"onednn": 10**9, "eigen": 1})
    plan = checked(joint(resolved, Settings(probe=timed)), source)
    assert libraries(plan) == {"relu": "onednn"}
    assert timed.asked == {"kept": 1}


@pytest.mark.parametrize(("slow", "looks"), [((), SAMPLES), ((8000,), 8), ((5000,), SAMPLES)])
def test_of_nodes_that_differ_in_size_some_are_probed(slow: tuple[int, ...], looks: int) -> None:
    probe = Slow(frozenset(slow))
    joint(lowered(relus(*range(1000, 9000, 1000)))[0], Settings(probe=probe))
    assert len(probe.asked) == looks
    assert {1000, 8000} <= probe.asked.keys()


def test_kernels_on_pads_are_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that takes each channel of a depthwise convolution for a block of them."""
    g = Graph("depthwise")
    x = g.input("x", {"N": 1, "C": 512, "H": 28, "W": 28})
    w = g.constant(np.ones((512, 1, 1, 3, 3), np.float32), "G O I h w")
    g.output(g.add(DepthwiseConv2D(), x, w, name="conv"), "y")
    resolved, _ = lowered(g.seal())
    sizes = list[int]()

    class Seen(Timed):
        def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int | None:
            sizes.append(node.variant.layouts[1].nbytes(values[node.inputs[1]].dims, "f32"))
            return 10**9

    joint(resolved, Settings(probe=Seen({})))
    least, most = min(sizes), max(sizes)
    monkeypatch.setattr(joint_module, "MAX_PAD_RATIO", 10**6)
    joint(resolved, Settings(probe=Seen({})))
    if max(sizes) == most:
        pytest.skip("there is no such kernel here")
    assert most <= joint_module.MIN_PADDED_BYTES or most <= 8 * least < max(sizes)


def small_image() -> tuple[LoweredGraph, Graph]:
    """A convolution that ``winograd`` goes before others for."""
    if native.load().lanes < 8:
        pytest.skip("the machine has no AVX2")
    random = np.random.default_rng(1)
    g = Graph("small")
    x = g.input("x", {"N": 1, "H": 7, "W": 7, "C": 512})
    w = g.constant(random.normal(size=(2048, 512, 1, 1)).astype(np.float32), "O I h w")
    g.output(g.add(Relu(), g.add(Conv2D(), x, w, name="conv")), "y")
    resolved, source = lowered(g.seal())
    assert libraries(resolved) == {"conv": "winograd"}
    return resolved, source


def test_no_estimate_undoes_what_goes_before_others() -> None:
    """The joint choice looks for no other, and nor does the bound that a plan is compared with."""
    resolved, source = small_image()
    plan = checked(joint(resolved, Settings()), source)
    assert libraries(plan) == {"conv": "winograd"}
    [node] = resolved.bare.operators
    assert not {"onednn", "eigen"} & {*other_libraries(resolved.bare, node)}
    assert {"onednn", "eigen"} <= {*other_libraries(resolved.bare, node, passed=True)}


@pytest.mark.parametrize("probing", [True, False])
def test_measured_times_undo_it(probing: bool) -> None:
    """And then nobody is said to be passed over who has the node."""
    resolved, source = small_image()
    times = Timed({"winograd": 10**9, "onednn": 10**6, "eigen": 10**7}, 1000)
    settings = Settings(probe=times) if probing else Settings("time", clock=times)
    plan = checked(joint(resolved, settings), source)
    assert libraries(plan) == {"conv": "onednn"}
    declined = {row["library"]: row["reason"] for row in explain_node(plan, "conv")["declined"]}
    assert "takes less time with onednn" in declined["winograd"]
    assert "onednn" not in declined


@pytest.mark.parametrize(("ns", "number"), [(95, 0), (90, 0), (89, 1)])
def test_a_tenth_is_not_clear(ns: int, number: int) -> None:
    """Another library has to gain more by estimate than a tenth of what the node takes."""
    resolved, _ = lowered(relus(1))
    first = replace(resolved.operators[0].variant, ns=100)
    rows = {"relu": [first, replace(first, library="eigen", ns=ns)]}
    problem = Problem.of(resolved, rows, Estimate(), MARGIN)
    chosen = problem.without_idle_changes(choose(problem, "time").chosen)
    assert chosen.get("relu", 0) == number


def apart(graph: LoweredGraph) -> list[Variant]:
    """The variants of the convolution with fewer followers than it has."""
    spares = dict.fromkeys(libraries(graph), 10**9)
    further = FurtherVariants(graph.bare, Estimate(), spares, Estimate())
    [conv] = [node for node in graph.bare.operators if node.followers]
    return [variant for variant in further.variants(conv) if variant.pieces]


def test_followers_may_run_by_themselves() -> None:
    resolved, source = lowered(tail())
    [conv] = [node for node in resolved.operators if node.followers]
    assert conv.variant.followers == ("bias", "relu")
    variants = apart(resolved)
    assert {variant.followers for variant in variants} == {(), ("bias",)}
    for variant in variants:
        split = checked(changed(resolved, {"conv": variant}), source)
        names = [node.name for node in split.operators][: 3 - len(variant.followers)]
        assert names == ["conv", *["bias", "relu"][len(variant.followers) :]]
        assert not split.merged.keys() & set(names)
    nodes = [node for node in split.nodes if node.name != "relu"]
    with pytest.raises(Exception, match="relu"):  # the twin: a follower is left out
        checked(replace(split, nodes=nodes), source)


@pytest.mark.parametrize(("ns", "split"), [(95, False), (84, False), (82, True)])
def test_steps_of_their_own_have_to_gain_more_than_noise(ns: int, split: bool) -> None:
    """Where times are measured: each step was timed alone."""
    resolved, _ = lowered(tail())
    [conv] = [node for node in resolved.operators if node.followers]
    whole = replace(conv.variant, ns=100, basis="measured")
    parted = replace(apart(resolved)[0], ns=ns, basis="measured")
    problem = Problem.of(resolved, {"conv": [whole, parted]}, Drawn(0))
    assert (problem.charged("conv", 1) < problem.charged("conv", 0)) == split


@dataclass(frozen=True)
class Disturbed(Drawn):
    """Of one kernel with all its followers a measurement was disturbed."""

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int | None:
        return {"conv": 9000 if node.followers else 100}.get(node.name, 10)


def test_a_kernel_takes_no_more_than_its_parts() -> None:
    resolved, _ = lowered(tail())
    [conv] = [node for node in resolved.bare.operators if node.followers]
    whole = replace(conv.variant, kernel="k")
    split = next(variant for variant in apart(resolved) if variant.layouts == whole.layouts)
    pair = [whole, replace(split, kernel="k")]
    inside = FurtherVariants(resolved.bare, Estimate(), {}, Estimate()).graph.tensors
    fastest = joint_module._fastest(inside, conv, pair, Disturbed(0))
    assert fastest[0].ns == 100 + 10 * (len(split.pieces) - 1)


def test_a_transform_has_to_gain_more_than_noise() -> None:
    """Where times are measured: it takes something, and what the nodes around it may be off by."""
    resolved, _ = lowered(tail())
    [conv] = [node for node in resolved.operators if node.followers]
    whole = replace(conv.variant, ns=1000, basis="measured")
    problem = Problem.of(resolved, {"conv": [whole, whole]}, Drawn(0))
    value, plain, other = conv.outputs[0], Layout("NCHW"), Layout("NHWC")
    took = Drawn(0).transform(problem.graph.tensors[value], LayoutChange(plain, other))
    assert took is not None
    assert problem.ns(value, plain, other) == took + 100


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_chosen_is_sound_and_the_least(seed: int) -> None:
    """Of drawn times; each row of variants has the resolver's first."""
    resolved, source = lowered(tail())
    clock = Drawn(seed, unknown=0.0)
    variants = timed_variants(resolved, clock)
    assert all(row[0].library == "onednn" for row in variants.values())
    plan = checked(optimise(resolved, "all", Settings("time", clock=clock)), source)
    assert plan.certificate is not None
    assert plan.certificate.costs == "measured ns"
    assert plan.certificate.ns_after <= plan.certificate.ns_before  # type: ignore[operator]


def test_values_stay() -> None:
    compared(tail(), 0, 1e-5, threads=1, optimize="all").close()


@pytest.mark.parametrize(("gain", "number"), [(20_000, 1), (119_000, 1), (121_000, 0)])
def test_fewer_transforms_where_measuring_does_not_tell(gain: int, number: int) -> None:
    """With two Transforms a kernel must gain more than these take, and measuring may be off by."""
    g = Graph("three")
    y = g.input("x", {"N": 1, "C": 8, "H": 4, "W": 4})
    for name in ("first", "middle", "last"):
        y = g.add(Softmax(("C",)), y, name=name)
    g.output(y, "y")
    resolved, _ = lowered(g.seal())
    [middle] = (node.variant for node in resolved.operators if node.name == "middle")
    other = middle.lying([Layout("NWCH")] * 2)
    variants = [
        replace(variant, kernel=str(ns), ns=ns, basis="measured")
        for variant, ns in ((other, 1_000_000), (middle, 1_000_000 + gain))
    ]
    clock = Timed({}, 10_000, basis="calibrated")
    problem = Problem.of(resolved, {"middle": variants}, clock, MARGIN)
    assert choose(problem, "time").chosen["middle"] == number
    if number:
        assert problem.without_idle_changes({"middle": 1}) == {"middle": 1}
    assert not clock.asked
