"""Every operator that is written: valid, equal once read back, and the same elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from libdesc.registry import registry
from ops import Concat, Resize, ScatterElements
from tests.export.support import NEWEST, RUNTIME, bare, checked, graph_of, runtime
from tests.frontends.support import f32, run_once
from tests.libraries.slow import ALL
from tests.operators.harness import check_close
from tests.operators.tables.cases import CASES, Case
from vtensor import Graph, load_onnx
from vtensor.errors import UnsupportedOperatorError
from vtensor.frontends.export import export
from vtensor.language.dtype import NARROW_FLOATS, NARROW_INTEGERS
from vtensor.language.operators import OPERATORS

registry()
WRITTEN = sorted(name for name in CASES if OPERATORS[name].write)

#: The operators of the paper's networks.
SIXTEEN = (
    *("Conv2D", "DepthwiseConv2D", "MatMul", "BiasAdd", "BatchNorm", "Relu", "Relu6", "MaxPool"),
    *("AvgPool", "Concat", "Add", "Mul", "Softmax", "LRN", "Pad", "Mean"),
)

#: Element types that NumPy has no arrays for.
FOREIGN = ("bf16", *NARROW_FLOATS, *NARROW_INTEGERS)

#: Where ONNX Runtime has no kernel for a case, or is of another opinion (steps for no
#: elements), or asks for memory that no machine has.
PEER_LACKS: dict[str, Callable[[Case], bool]] = {
    "DynamicQuantizeLinear": lambda case: "=0" in case.inputs[0],
    "LRN": lambda case: "H=" not in case.inputs[0] or case.op.size % 2 == 0 or case.op.size > 99,
    "Pad": lambda case: not case.op.axes,
    "Resize": lambda case: "C" in case.op.axes,
    "Swish": lambda case: True,
}


def peer_lacks(case: Case, graph: Graph) -> bool:
    """Return whether ONNX Runtime cannot tell what the answer is."""
    [node] = graph.nodes.values()
    if any(graph.values[name].dtype in FOREIGN for name in (*node.inputs, *node.outputs)):
        return True
    return node.op_name in PEER_LACKS and PEER_LACKS[node.op_name](case)


def test_the_operators_of_the_papers_networks_are_written() -> None:
    assert set(SIXTEEN) <= set(WRITTEN)


@pytest.mark.parametrize("name", WRITTEN)
def test_every_case(name: str) -> None:
    """As ONNX Runtime has it, and as the nodes alone are read; a case may need a later opset.

    ``make test`` runs the first three of each operator.
    """
    written = 0
    for place, case in enumerate(CASES[name]):
        graph, feeds = graph_of(case)
        models = []
        for opset in (17, RUNTIME, *[NEWEST] * (ALL or place == 0)):
            try:
                models.append(checked(graph, opset))
            except UnsupportedOperatorError:
                continue
            assert load_onnx(models[-1]) == graph, case
        written += bool(models)
        if not models or (place > 2 and not ALL):
            continue
        ours, read = (run_once(g, feeds, libraries=["numpy"]) for g in (graph, bare(models[0])))
        theirs = [] if peer_lacks(case, graph) else runtime(models[0], feeds)
        for y, other in [*zip(ours, read, strict=True), *zip(ours, theirs, strict=bool(theirs))]:
            check_close(np.asarray(y), np.asarray(other), 1e-4)
    assert written, "no case of it is written"


@pytest.mark.parametrize("name", sorted(set(CASES) - set(WRITTEN)))
def test_what_is_not_written_is_refused_by_name(name: str) -> None:
    graph, _ = graph_of(CASES[name][0])
    with pytest.raises(UnsupportedOperatorError, match=rf"{name} 'op' : .*\n  to fix: "):
        export(graph)


CROP = Resize(("H",), (5,), (1.25,), coordinates="tf_crop_and_resize", roi=((0.0, 0.5),))
TABLE = ("A=3 B=4", "A=2 B=4 <3", "A=2 B=4")


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case(CROP, ("N=1 H=4",)), "a box that is cropped first is not written"),
        (Case(ScatterElements("A", "max"), TABLE), "reduction max from opset 18 on"),
    ],
    ids=str,
)
def test_what_a_node_cannot_say_is_refused(case: Case, reason: str) -> None:
    graph, _ = graph_of(case)
    with pytest.raises(UnsupportedOperatorError, match=reason):
        export(graph, 17)


@pytest.mark.parametrize("dim", ["A", "B"])
def test_a_concat_joins_inputs_whose_dims_are_in_other_orders(dim: str) -> None:
    graph, arrays = Graph("concat"), {"a": f32(2, 2), "b": f32(2, 2, seed=1)}
    a, b = graph.input("a", {"A": 2, "B": 2}), graph.input("b", {"B": 2, "A": 2})
    graph.output(graph.add(Concat(dim), a, b), "y")
    model = checked(graph.seal(), 17)
    expected = np.concatenate([arrays["a"], arrays["b"].T], axis="AB".index(dim))
    for outputs in (runtime(model, arrays), run_once(bare(model), arrays)):
        np.testing.assert_array_equal(outputs[0], expected)


def test_a_wrong_attribute_is_seen() -> None:
    """The twin: another stride is another answer."""
    graph, feeds = graph_of(CASES["MaxPool"][0])
    model = export(graph)
    [strides] = [a for a in model.graph.node[0].attribute if a.name == "strides"]
    strides.ints[:] = [1, 1]
    assert load_onnx(model) != graph
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    [ours] = run_once(graph, feeds, libraries=["numpy"])
    [theirs] = runtime(onnx.ModelProto.FromString(model.SerializeToString()), feeds)
    with pytest.raises(AssertionError):
        check_close(ours, theirs, 1e-4)
