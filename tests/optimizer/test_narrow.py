"""f32 networks in bf16: ``precision="bf16"``, and bf16 forms that a tolerance may choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from libdesc.registry import registry
from libdesc.schema import Speed
from ops import Conv2D, Floor, MatMul, Relu, RMSNormalization, Softmax
from optimizer.choice.errors import Allowed
from optimizer.choice.ilp import choose
from optimizer.choice.problem import Problem
from optimizer.choice.worth import narrow_worth
from optimizer.joint import timed_variants
from optimizer.narrow import narrow
from resolver.errors import Share, planes_form
from resolver.lowered import OpNode
from tests.libraries.command import data_of, vtensor
from tests.libraries.processes import printed
from tests.optimizer.clocks import Drawn
from tests.optimizer.graphs import extended_of
from tests.optimizer.test_errors import least
from tests.optimizer.test_widen import Net, conv_net, graph_of, input_of, transformer
from vtensor import Session
from vtensor.errors import InputError, LockError
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor
from vtensor.runtime.planning import tuned
from vtensor.runtime.planning.tolerance import has_instructions
from vtensor.runtime.tuning import tuner as tuning

Array = NDArray[Any]

NETWORKS = {"conv net": conv_net, "transformer": transformer}

#: Tests of bf16 kernels need a processor that has them.
needs_bf16 = pytest.mark.skipif(not has_instructions("bf16"), reason="no instructions for bf16")

#: A rough bound of the relative error of these networks: each stored value has 8 bits.
ROUGH = 0.05


@pytest.fixture
def computing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let oneDNN say that it computes in bf16, whatever the processor."""
    code = registry().libraries["onednn"].code
    monkeypatch.setitem(code, "computes_handler", lambda _: True)


def types_of(graph: Graph, op: str) -> list[str]:
    """Return the types of the first outputs of a graph's nodes of an operator."""
    nodes = [node for node in graph.nodes.values() if node.op_name == op]
    return [graph.values[node.outputs[0]].dtype for node in nodes]


def run(model: Any, feeds: Mapping[str, Array], **options: Any) -> Array:
    with Session(model, threads=1, cache_dir=False, **options) as session:
        return np.array(session.run(None, feeds)[0])


def off(one: Array, other: Array) -> float:
    return float(np.abs(one.astype("f8") - other.astype("f8")).max() / np.abs(one).max())


@needs_bf16
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_rounded_and_not_by_much(name: str) -> None:
    model = NETWORKS[name]("f32")
    feeds = input_of(model, "f32")
    strict, y = run(model, feeds), run(model, feeds, precision="bf16")
    assert y.dtype == strict.dtype == np.float32
    assert 0 < off(strict, y) < ROUGH


@needs_bf16
def test_a_convolutional_network_is_converted_at_its_ends() -> None:
    model = conv_net("f32")
    with Session(model, threads=1, cache_dir=False, precision="bf16") as session:
        steps = session.plan.steps
        values = session.plan.graph.values
        inner = [step for step in steps if not (step.is_transform or step.op == "Cast")]
        stored = {values[name].dtype for step in inner[:-1] for name in step.node.outputs}
        assert stored == {"bf16"}
        assert inner[-1].op == "MatMul + BiasAdd + Cast"
        assert sum("Cast" in step.op for step in steps) == 2
        assert len(session.conversions) <= 1


def test_the_default_rounds_nothing() -> None:
    model = conv_net("f32")
    feeds = input_of(model, "f32")
    with Session(model, threads=1, cache_dir=False) as session:
        [y] = session.run(None, feeds)
        assert "narrow" not in session.plan.passes
        assert {value.dtype for value in session.plan.graph.values.values()} == {"f32"}
    assert np.array_equal(y, run(model, feeds, precision="f32"))


@pytest.mark.parametrize("precision", ["bf17", "", None, 16])
def test_another_precision_is_refused(precision: Any) -> None:
    with pytest.raises(InputError, match=r"precision=.* must be one of f32, bf16"):
        Session(conv_net("f32"), precision=precision)


#: Two sessions in bf16, one in f32, under a cap: the warnings, and whether answers are equal.
CAPPED = """
import sys, warnings
import numpy as np
from vtensor import Session, limit_isa
limit_isa("avx2")
x = {"x": np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype("f")}
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    answers = []
    for precision in ("bf16", "bf16", "f32"):
        with Session(sys.argv[1], threads=1, cache_dir=False, precision=precision) as session:
            answers.append(session.run(None, x)[0])
            assert "narrow" not in session.plan.passes
print(len(seen), str(seen[0].message), all(np.array_equal(answers[0], y) for y in answers))
"""


def test_a_processor_without_bf16_is_warned_of_once(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    onnx.save(conv_net("f32"), file)
    text = printed("-c", CAPPED, file)
    assert text.startswith("1 precision='bf16': this processor, under its cap, has no instructions")
    assert text.strip().endswith("True")


@pytest.mark.usefixtures("computing")
def test_ends_indices_and_jumps_stay_wide() -> None:
    """A Softmax at the end is in f32, and so is what decides indices; Relu goes with a product."""
    g = Graph("ends")
    x = g.input("x", {"N": 2, "C": 4, "H": 5, "W": 5})
    w = g.constant(np.ones((4, 4, 3, 3), np.float32), "O I h w")
    y = g.add(Relu(), g.add(Conv2D(), x, w))
    g.output(g.add(Softmax(("C",)), y), "y")
    g.output(g.add(Floor(), g.add(Conv2D(), y, w)), "floor")
    narrowed = narrow(g)
    assert types_of(narrowed, "Conv2D") == ["bf16", "bf16"]
    assert types_of(narrowed, "Relu") == ["bf16"]
    assert types_of(narrowed, "Softmax") == types_of(narrowed, "Floor") == ["f32"]
    casts = [node for node in narrowed.nodes.values() if node.op_name == "Cast"]
    assert len(casts) == 3  # of x, of the Relu for the Softmax, of the last convolution


@pytest.mark.usefixtures("computing")
@pytest.mark.parametrize(("slow", "dtype"), [(0.05, "f32"), (0.5, "bf16")])
def test_a_product_that_bf16_slows_down_stays_wide(
    slow: float, dtype: str, monkeypatch: pytest.MonkeyPatch, computing: None
) -> None:
    """It stays in bf16 if the conversions around it would take longer than bf16 costs."""
    speeds = {"bf16": Speed("", 10.0, slow)}
    code = registry().libraries["onednn"].code
    monkeypatch.setitem(code, "speeds_handler", lambda: speeds)
    net = Net("f32")
    x = net.add("Conv", "x", net.weight(64, 64, 3, 3), pads=[1] * 4)
    x = net.add("Conv", x, net.weight(64, 1, 3, 3), group=64, pads=[1] * 4)
    net.add("Conv", x, net.weight(64, 64, 3, 3), pads=[1] * 4, out="y")
    graph = narrow(graph_of(net.model({"x": [1, 64, 56, 56]}, {"y": [1, 64, 56, 56]})))
    assert types_of(graph, "DepthwiseConv2D") == [dtype]
    assert types_of(graph, "Conv2D") == ["bf16", "bf16"]


def test_a_graph_without_products_is_the_same_object() -> None:
    net = Net("f32")
    net.add("Tanh", net.add("Add", "x", net.weight(4)), out="y")
    graph = graph_of(net.model({"x": [3, 4]}, {"y": [3, 4]}))
    assert narrow(graph) is graph


@pytest.mark.usefixtures("computing")
def test_statistics_stay_wide() -> None:
    graph = narrow(graph_of(transformer("f32")))
    assert types_of(graph, "LayerNormalization") == types_of(graph, "Softmax") == ["f32"]
    assert set(types_of(graph, "MatMul")) == {"bf16"}


@needs_bf16
def test_casts_are_fused_to_products() -> None:
    with Session(transformer("f32"), threads=1, cache_dir=False, precision="bf16") as session:
        ops = [step.op for step in session.plan.steps]
    assert any(op.startswith("MatMul") and "Cast" in op for op in ops)


@needs_bf16
def test_constants_are_rounded_as_by_ml_dtypes() -> None:
    """A product with a matrix of ones shows the constants."""
    weights = np.random.default_rng(1).standard_normal((64, 32)).astype(np.float32)
    g = Graph("ones")
    x = g.input("x", {"N": 64, "K": 64})
    g.output(g.add(MatMul("K"), x, g.constant(weights, "K M")), "y")
    y = run(g, {"x": np.eye(64, dtype=np.float32)}, precision="bf16")
    assert np.array_equal(y, weights.astype(ml_dtypes.bfloat16).astype(np.float32))


def large_net(path: Path) -> Path:
    """Write a model whose weights are too large to be saved in a cache entry."""
    net = Net("f32")
    x = net.add("Relu", net.add("MatMul", "x", net.weight(512, 1024)))
    net.add("MatMul", x, net.weight(1024, 512), out="y")
    onnx.save(net.model({"x": ["batch", 512]}, {"y": ["batch", 512]}), path)
    return path


@needs_bf16
def test_a_plan_in_bf16_comes_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # libraries of other tests of this process would keep plans out of the cache
    monkeypatch.setattr("vtensor.runtime.cache.plans.no_plugins", lambda: True)
    file, cache = large_net(tmp_path / "net.onnx"), tmp_path / "cache"
    x = np.random.default_rng(0).standard_normal((3, 512)).astype(np.float32)
    answers, cached = list[Array](), list[bool]()
    for precision in ("bf16", "bf16", "f32"):
        options: Any = {"threads": 1, "cache_dir": cache, "precision": precision}
        with Session(file, deterministic=True, **options) as session:
            answers.append(np.array(session.run(None, {"x": x})[0]))
            cached.append(session.plan.origin.cached)
    assert cached == [False, True, False]
    assert np.array_equal(answers[0], answers[1])
    assert 0 < off(answers[2], answers[0]) < ROUGH


@needs_bf16
def test_a_lock_file_fixes_the_precision(tmp_path: Path) -> None:
    model, lock = conv_net("f32"), tmp_path / "plan.toml"
    feeds = input_of(model, "f32")
    with Session(model, threads=1, cache_dir=False, precision="bf16") as session:
        [y] = session.run(None, feeds)
        session.lock().write(lock)
    assert 'precision = "bf16"' in lock.read_text()
    assert np.array_equal(run(model, feeds, plan=lock), y)
    with pytest.raises(InputError, match="precision: plan= fixes this already"):
        Session(model, plan=lock, precision="bf16")
    other = tmp_path / "other.toml"
    other.write_text(lock.read_text().replace('precision = "bf16"', 'precision = "f31"'))
    with pytest.raises(LockError, match="must be one of f32, bf16"):
        Session(model, plan=other)
    with Session(model, threads=1, cache_dir=False) as session:
        assert "precision" not in session.lock().text()


@needs_bf16
def test_a_network_in_f16_may_run_in_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where f16 has no kernels."""
    code = registry().libraries["onednn"].code
    monkeypatch.setitem(code, "computes_handler", lambda dtype: dtype != "f16")
    model, exact = conv_net("f16"), conv_net("f32")
    with Session(model, threads=1, cache_dir=False, precision="bf16") as session:
        [y] = session.run(None, input_of(model, "f16"))
        convolutions = [step for step in session.plan.steps if "Conv" in step.op]
        values = session.plan.graph.values
        assert {values[step.node.outputs[0]].dtype for step in convolutions} == {"bf16"}
    assert y.dtype == np.float16
    assert 0 < off(run(exact, input_of(exact, "f32")), y) < ROUGH


class Keen(Drawn):
    """Times by which kernels that read or make the encoding ``form`` are faster than others."""

    form = "bf16"

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int | None:
        """Return the time of a node."""
        encodings = {str(layout.encoding) for layout in node.variant.layouts}
        in_planes = planes_form(node.variant) not in ("", "bf16x3")
        return 1 if self.form in encodings and not in_planes else 1000


def rounded(session: Session) -> list[str]:
    """Return the nodes that read or make bf16."""
    return [
        node.name
        for node in session.plan.graph.operators
        if any("bf16" in str(layout) for layout in node.variant.layouts)
    ]


@needs_bf16
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("tolerance", [1e-5, 4e-3, 0.05])
def test_a_tolerance_admits_as_much_rounding_as_fits(
    name: str, tolerance: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "Tuner", lambda *_: Keen(1))
    monkeypatch.setattr(tuned, "fastest", lambda plans, _: (plans[0], [1] * len(plans)))
    model, lock = NETWORKS[name]("f32"), tmp_path / "plan.toml"
    feeds = input_of(model, "f32", seed=11)
    options: Any = {"threads": 1, "cache_dir": False, "tolerance": tolerance}
    with Session(model, tune=True, **options) as session:
        [y] = session.run(None, feeds)
        count, nodes = len(rounded(session)), len(session.plan.graph.operators)
        session.lock().write(lock)
        assert set(rounded(session)) <= {
            node.name for node in session.plan.graph.operators if node.variant.inexact
        }
    assert off(run(model, feeds), y) <= tolerance
    assert count == 0 if tolerance == 1e-5 else count > 0 if tolerance == 0.05 else count < nodes
    with Session(model, plan=lock, **options) as session:
        assert np.array_equal(session.run(None, feeds)[0], y)
        assert len(rounded(session)) == count


@dataclass(frozen=True)
class Said:
    """A meter by which each bf16 form is off by 2**-9 of its own, and gains are drawn."""

    seed: int

    def shares(self, nodes: Sequence[OpNode]) -> list[Share | None]:
        return [self.share(node) for node in nodes]

    def holds(self, *_: object) -> bool:
        return True

    def gains(self, nodes: Sequence[OpNode]) -> list[float]:
        return [self.share(node).gain for node in nodes]

    def share(self, node: OpNode) -> Share:
        gain = float(np.random.default_rng((self.seed, *node.name.encode())).uniform(0.1, 2))
        error = 2.0**-9
        return Share(node.name, node.variant.kernel, error, gain, ((error, 1.0),), ((1.0, gain),))


@needs_bf16
@pytest.mark.parametrize("seed", range(6))
def test_the_program_chooses_types_as_brute_force_does(seed: int) -> None:
    """Library, layouts, kernel and type of two convolutions and the Relu between."""
    g = Graph("tiny")
    x = g.input("x", {"N": 1, "C": 16, "H": 6, "W": 6})
    w = [g.constant(np.ones((16, 16, 3, 3), np.float32), "O I h w", f"w{i}") for i in range(2)]
    g.output(g.add(Conv2D(), g.add(Relu(), g.add(Conv2D(), x, w[0])), w[1]), "y")
    graph, clock = extended_of(g), Drawn(seed, unknown=0)
    variants = timed_variants(graph, clock, allowed=Allowed(1.0, 1.0, Said(seed)))
    assert any("bf16" in str(v.layouts) for of_node in variants.values() for v in of_node)
    least_with = list[int]()
    for budget in (0.0, 2.0**-9, 1.0):
        problem = Problem.of(graph, variants, clock, allowed=Allowed(1.0, budget, Said(seed)))
        choice = choose(problem, "time")
        assert problem.fits(choice.chosen)
        least_with.append(problem.time_cost(choice.chosen))
        assert least_with[-1] == least(problem)
    assert least_with == sorted(least_with, reverse=True)


@needs_bf16
def test_a_plan_says_what_narrower_types_are_worth(tmp_path: Path) -> None:
    file = large_net(tmp_path / "net.onnx")
    asked = ("plan", file, "--shape", "x=64,512", "--threads", 1, "--no-cache")
    worth, data = data_of(*asked)["narrower"], data_of(*asked, "--precision", "bf16")
    assert worth["share"] > 0.9
    assert all(0 < row["of_time"] < 1 for row in worth["types"].values())
    assert "products in f32 are" in vtensor(*asked).stdout
    assert data["narrower"] is None  # nothing is left to gain
    assert 0 < data["precision_error"] < ROUGH
    assert data_of(*asked)["precision_error"] is None
    text = vtensor(*asked, "--precision", "bf16").stdout
    assert f"results are off by {data['precision_error']:.1e}" in text
    products = [step for step in data["steps"] if step["operator"].startswith("MatMul")]
    assert {row["dtype"] for step in products for row in step["inputs"]} == {"bf16"}
    assert all(row["layout"].endswith(":bf16") for step in products for row in step["inputs"])


@needs_bf16
def test_normalizations_count_as_no_products() -> None:
    """They are linear in their scale, and no instructions multiply for them."""
    g = Graph("scaled")
    x = g.input("x", {"N": 64, "C": 512})
    scale = g.constant(np.ones((64, 512), np.float32), "N C", "scale")
    g.output(g.add(RMSNormalization(("C",)), x, scale), "y")
    assert narrow_worth(extended_of(g)) is None


@needs_bf16
def test_a_frontier_has_no_further_plan_of_a_network_in_bf16() -> None:
    g = Graph("rounded")
    x = g.input("x", {"N": 4, "K": 16}, "bf16")
    w = g.constant(np.ones((16, 8), ml_dtypes.bfloat16), "K M", "w")
    g.output(g.add(MatMul("K"), x, w), "y")
    with Session(g, threads=1, tune=True) as session:
        points = session.frontier([0], runs=1).points
    assert [point.precision for point in points] == [""]


def test_the_command_line_refuses_another_precision(tmp_path: Path) -> None:
    file = large_net(tmp_path / "net.onnx")
    ran = vtensor("plan", file, "--shape", "x=2,512", "--precision", "f64")
    assert ran.exit_code == 1
    assert "--precision on the command line) must be one of f32, bf16" in ran.stderr


#: The lower halves that are tried with each upper half of an f32.
LOWS = np.array([0, 1, 0x4000, 0x7FFF, 0x8000, 0x8001, 0xC000, 0xFFFF], np.uint32)


def every_float() -> Array:
    """Return f32 with each of the 2**16 upper halves."""
    bits = (np.arange(1 << 16, dtype=np.uint32)[:, None] << 16) | LOWS
    return bits.reshape(-1).view(np.float32)


@pytest.mark.parametrize("how", ["N:bf16", "N8n:bf16"])
@pytest.mark.parametrize("library", ["onednn", "numpy"])
def test_a_transformer_rounds_as_ml_dtypes_does(library: str, how: str) -> None:
    """A NaN stays one of the same sign. oneDNN makes 0 of numbers that bf16 kernels take for 0."""
    from tests.libraries.transforming import transformed

    x = every_float()
    with np.errstate(all="ignore"):
        want = x.astype(ml_dtypes.bfloat16).view(np.uint16)
        nan, small = np.isnan(x), (np.abs(x) < np.finfo(np.float32).tiny) & (x != 0)
    y = transformed(library, x, "N", how).view(np.uint16)
    exact = ~nan & ~small if library == "onednn" else ~nan
    assert np.array_equal(y[exact], want[exact])
    assert ((y[nan] & 0x7FFF) > 0x7F80).all()
    assert np.array_equal(y >> 15, want >> 15)
    assert ((y[small] == want[small]) | (y[small] & 0x7FFF == 0)).all()
