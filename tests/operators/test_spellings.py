"""How ONNX writes each operator, against ONNX Runtime or ONNX's reference; each is visited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from libdesc.registry import registry
from ops._codes import MICROSOFT
from tests.libraries.slow import ALL
from tests.operators.harness import check_close
from tests.operators.tables.nodes import IMAGE, Node, agrees, floats, node, opsets
from tests.operators.tables.nodes_elementwise import ELEMENTWISE, OLD
from tests.operators.tables.nodes_layers import LAYERS, STATISTICS
from tests.operators.tables.nodes_sampling import SAMPLING
from tests.operators.tables.nodes_shape import SHAPES
from vtensor.errors import DimError, ModelError, UnsupportedOperatorError
from vtensor.language.operators import OPERATORS
from vtensor.language.spelling import COUNTED
from vtensor.runtime.session import Session

NODES = [*LAYERS, *SHAPES, *SAMPLING]

UNSUPPORTED, NEGATIVE = UnsupportedOperatorError, (UnsupportedOperatorError, ModelError)
POOLS = ("MaxPool", "AveragePool")
OUTSIDE = {"kernel_shape": [2, 2], "pads": [2, 0, 0, 0]}
PADS = {"kernel_shape": [3, 3], "pads": [0, -1, 0, 0]}
REFUSED: list[tuple[Node, Any, str]] = [
    (node("Conv", 11, (1, 2, 3, 3, 3, 3), floats(4, 2, 1, 1, 1, 1)), UNSUPPORTED, "4 spatial dims"),
    (node("Dropout", 13, IMAGE, np.array(0.3, "f4"), np.array(True)), UNSUPPORTED, "training_mode"),
    (node("BatchNormalization", 7, IMAGE, *STATISTICS, spatial=0), UNSUPPORTED, "spatial 0"),
    (node("Conv", 11, IMAGE, floats(4, 6, 3, 3), pads=[0, -1, 0, 0]), NEGATIVE, "pads"),
    (node("ConvTranspose", 11, IMAGE, floats(6, 4, 3, 3), pads=[0, -1, 0, 0]), NEGATIVE, "pads"),
    *((node(name, 11, IMAGE, **PADS), NEGATIVE, "pads") for name in ("LpPool", *POOLS)),
    *((node(name, 11, IMAGE, **OUTSIDE), DimError, "smaller than what a window") for name in POOLS),
]


@pytest.mark.parametrize("node", NODES, ids=str)
def test_definitions_and_libraries_agree_with_onnx(node: Node) -> None:
    assert agrees(node, ("numpy",), None)


def newest(node: Node) -> bool:
    """Return whether no element-wise row of the operator is of a later opset."""
    return node.opset == max(row.opset for row in ELEMENTWISE if row.op_type == node.op_type)


@pytest.mark.parametrize("node", [row for row in ELEMENTWISE if ALL or newest(row)], ids=str)
def test_elementwise_operators_agree_with_onnx(node: Node) -> None:
    """An opset decides how a node is read, not what runs it: old opsets need one library, and
    ``make test`` compares each in test_opsets.
    """
    assert agrees(node, ("numpy",), None) if newest(node) else agrees(node, ("numpy",))


@pytest.mark.parametrize(("old", "since"), OLD, ids=str)
def test_an_old_opset_means_the_same(old: Node, since: Node) -> None:
    expected = since.expected()
    assert expected is not None
    check_close(old.run()[0], expected[0].astype(np.float64), 1e-5)


@pytest.mark.parametrize("columns", [0, 1])
def test_indices_of_the_largest_agree_with_pads_and_ties(columns: int) -> None:
    window = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}
    pool = node("MaxPool", 12, IMAGE, outputs=2, storage_order=columns, **window)
    pool.feeds["x0"][...] = np.round(pool.feeds["x0"])
    session = onnxruntime.InferenceSession(pool.model().SerializeToString())
    for ours, theirs in zip(pool.run(), session.run(None, dict(pool.feeds)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_window_within_its_stride_has_no_pads() -> None:
    """ONNX Runtime asks for negative pads here and fails; ONNX's reference begins elsewhere."""
    pool = node("MaxPool", 12, IMAGE, kernel_shape=[1, 2], strides=[4, 4], auto_pad="SAME_UPPER")
    rows = pool.feeds["x0"][:, :, ::4]
    expected = np.maximum(rows[..., ::4], rows[..., 1::4])
    np.testing.assert_array_equal(pool.run()[0], expected)


@pytest.mark.parametrize(("node", "error", "reason"), REFUSED, ids=str)
def test_a_variant_is_refused_with_its_reason(node: Node, error: Any, reason: str) -> None:
    with pytest.raises(error, match=reason):
        Session(node.model(), threads=1)


def test_every_opset_of_elementwise_operators_is_visited() -> None:
    visited = {(row.op_type, row.opset) for row in ELEMENTWISE}
    for op_type in {name for name, _ in visited} - {"BitShift"}:
        assert {(op_type, opset) for opset in opsets(op_type)} <= visited


def test_every_spelling_is_visited() -> None:
    assert not unvisited(NODES)


def unvisited(nodes: list[Node]) -> set[str]:
    """Return the spellings of our operators without a node that is in their opsets.

    ONNX has no definition of ONNX Runtime's own operators, which have tests of their own. To run
    a node whose sizes a run counts, a session writes it in the domain ``COUNTED``.
    """
    registry()
    visited = [*nodes, *ELEMENTWISE, *(old for old, _ in OLD)]
    return {
        f"{spelling.op_type} since {spelling.since}"
        for info in OPERATORS.values()
        for spelling in (info.onnx if Path(info.file).parent.name == "ops" else ())
        if not spelling.op_type.startswith(MICROSOFT)
        and spelling.rank is None
        and not any(
            node.op_type == spelling.op_type.removeprefix(f"{COUNTED}::")
            and spelling.since <= node.opset <= (spelling.until or 99)
            for node in visited
        )
    }


def test_a_spelling_that_is_not_visited_is_seen() -> None:
    """The twin."""
    left = [node for node in NODES if (node.op_type, node.opset) != ("Softmax", 13)]
    assert unvisited(left) == {"Softmax since 13"}
