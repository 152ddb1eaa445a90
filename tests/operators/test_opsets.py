"""Every operator in every version that ONNX has of it from opset 7 on, against ONNX Runtime.

The nodes of the tests of spellings, and some more, run in each version that allows them, and on
each element type of ours that it allows. No version goes unvisited, nor do its attributes,
optional inputs and element types; values are compared at some of each version's nodes, drawn the
same every time, and at all of them where everything is tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random

import numpy as np
import pytest
from onnx import TensorProto, defs

from libdesc.registry import registry
from tests.libraries.slow import ALL
from tests.operators.tables.nodes import (
    FIRST,
    IMAGE,
    SERIES,
    TYPES,
    Node,
    agrees,
    fed,
    floats,
    integers,
    node,
    numbers,
    versions,
)
from tests.operators.tables.nodes_elementwise import COUNTS, ELEMENTWISE, X
from tests.operators.tables.nodes_layers import LAYERS, STATISTICS
from tests.operators.tables.nodes_sampling import MORE_SAMPLING, SAMPLING
from tests.operators.tables.nodes_shape import SHAPES
from vtensor.errors import ModelError
from vtensor.language.operators import OPERATORS
from vtensor.runtime.session import Session

TIES = COUNTS.astype(np.float32)
SMALL = 1 + np.abs(np.sin(X[:, :, :2, 0]))
POOLED = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}
HALVED = {"kernel_shape": [2, 2], "strides": [2, 2]}
AXES = {"axes": [1], "keepdims": 0}
PLACES = integers(1, 5, 7, 11).reshape(1, 1, 2, 2)
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

#: Queries, keys and values of 6 and 2 heads; all attributes of ONNX's first Attention.
IN_HEADS = (2, 6, 4, 8), (2, 2, 5, 8), (2, 2, 5, 6)
SHAPED = {"q_num_heads": 6, "kv_num_heads": 2, "is_causal": 1, "scale": 0.3, "softcap": 2.0}
SHAPED |= {"softmax_precision": 1, "qk_matmul_output_mode": 0}
ROTARY = {"num_heads": 2, "rotary_embedding_dim": 8}

#: What the tests of spellings leave out.
MORE: list[Node] = [
    *(fed(op, 7, TIES, axis=1, keepdims=0) for op in ("ArgMax", "ArgMin")),
    *(fed(op, 12, TIES, select_last_index=1) for op in ("ArgMax", "ArgMin")),
    node("Attention", 23, *IN_HEADS),
    node("Attention", 23, *IN_HEADS, (4, 12), (2, 2, 7, 8), (2, 2, 7, 6)),
    node("Attention", 23, (2, 4, 48), (2, 5, 16), (2, 5, 12), (4, 5), **SHAPED),
    node("Attention", 24, *IN_HEADS, None, None, None, integers(3, 5), is_causal=1),
    node("Attention", 25, *IN_HEADS, left_window_size=1, right_window_size=2),
    node("AveragePool", 7, IMAGE, count_include_pad=1, **POOLED),
    node("BatchNormalization", 7, IMAGE, *STATISTICS, momentum=0.5, spatial=1),
    node("BatchNormalization", 9, IMAGE, *STATISTICS, momentum=0.5),
    node("BatchNormalization", 14, IMAGE, *STATISTICS, momentum=0.5, training_mode=0),
    fed("Cast", 19, X, saturate=0, to=TensorProto.FLOAT16),
    fed("CastLike", 19, X, COUNTS, saturate=0),
    fed("Cast", 24, X, to=TensorProto.INT8, round_mode="nearest"),
    fed("CastLike", 24, X, COUNTS, round_mode="down"),
    node("ConvTranspose", 7, IMAGE, floats(6, 4, 3, 2), kernel_shape=[3, 2]),
    node("Dropout", 7, IMAGE, ratio=0.3),
    node("Dropout", 12, IMAGE, seed=3),
    node("GroupNormalization", 21, IMAGE, floats(6), floats(6), num_groups=3, epsilon=0.1),
    node("GroupNormalization", 21, SERIES, floats(6), floats(6), num_groups=2, stash_type=1),
    node("LayerNormalization", 17, IMAGE, floats(8), stash_type=1),
    node("LpPool", 18, IMAGE, kernel_shape=[2, 3], dilations=[2, 1]),
    node("MaxPool", 7, IMAGE, kernel_shape=[3, 2], auto_pad="SAME_LOWER"),
    fed("MaxPool", 8, TIES[None, :, :, :], storage_order=1, **POOLED),
    node("MaxUnpool", 9, (1, 1, 2, 2), PLACES, pads=[0, 1, 0, 0], **HALVED),
    node("MaxUnpool", 9, (1, 1, 2, 2), PLACES, integers(1, 1, 5, 6), **HALVED),
    node("Pad", 18, IMAGE, integers(1, 0, 2, 1), np.array(3, "f4"), integers(2, -1)),
    node("RMSNormalization", 23, IMAGE, floats(8), stash_type=1),
    *(fed(f"Reduce{name}", 7, SMALL, **AXES) for name in REDUCTIONS),
    *(fed(f"Reduce{name}", 7, SMALL) for name in REDUCTIONS),
    *(
        fed(f"Reduce{name}", 18, SMALL, *axes, noop_with_empty_axes=empty, constants=n, **keep)
        for name in REDUCTIONS
        for axes, n in (((), 0), ((integers(0, -1),), 1))
        for empty in (0, 1)
        for keep in ({}, {"keepdims": 0})
    ),
    fed("ReduceSum", 13, TIES, integers(1), noop_with_empty_axes=1, keepdims=0, constants=1),
    fed("Resize", 11, X, numbers(), numbers(1, 1, 2, 3), constants=2),
    fed("Resize", 13, X, None, None, integers(2, 3, 6, 7), constants=1),
    fed("Resize", 13, X, numbers(), None, integers(2, 3, 6, 7), constants=1),
    fed("Resize", 13, X, None, numbers(1, 1, 2, 3), constants=1),
    node("RotaryEmbedding", 23, (2, 2, 3, 8), (2, 3, 4), (2, 3, 4)),
    node("RotaryEmbedding", 23, (2, 2, 3, 8), (9, 4), (9, 4), integers(*range(6)).reshape(2, 3)),
    node("RotaryEmbedding", 23, (2, 3, 24), (2, 3, 4), (2, 3, 4), interleaved=1, **ROTARY),
    node("ScatterElements", 11, (3, 4), integers(1, -1).reshape(1, 2), (1, 2), axis=-2),
    node("Slice", 10, IMAGE, integers(1, 2), integers(2, 4)),
    node("SpaceToDepth", 28, (2, 3, 6, 4), blocksize=2, mode="CRD"),
    node("Split", 7, IMAGE, axis=1, split=[2, 4], outputs=2),
    node("Squeeze", 7, (1, 3, 1, 4), axes=[0, 2]),
    node("TopK", 10, IMAGE, integers(2), axis=1, outputs=2),
    node("TopK", 11, IMAGE, integers(1), sorted=0, outputs=2),
    node("Upsample", 9, (1, 2, 3, 4), numbers(1, 1, 2, 2), mode="linear"),
]

POOL = [*MORE_SAMPLING, *ELEMENTWISE, *LAYERS, *SHAPES, *SAMPLING, *MORE]

#: Nodes of each version whose values are compared, of those that others can run.
COMPARED = None if ALL else 1

#: ONNX's own inference reads no axes of 32 bits.
NEVER_INFERRED = {("Pad", "Tind int32")}


def definitions(deprecated: bool = False) -> list[defs.OpSchema]:
    """Return all versions of all operators in ``docs/operators.md``."""
    registry()
    ours = [info for info in OPERATORS.values() if info.cls.__module__.startswith("ops.")]
    names = sorted({spelling.op_type for info in ours for spelling in info.onnx})
    return [s for name in names for s in versions(name) if s.deprecated == deprecated]


def every_version(schema: defs.OpSchema, nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield the nodes that a definition allows, as they are there."""
    for row in nodes:
        if row.op_type == schema.name:
            version = row.at(max(FIRST, schema.since_version))
            if version.fits():
                yield version


def unmet(schema: defs.OpSchema, nodes: Sequence[Node]) -> set[str]:
    """Return what of a definition no node shows: attributes, optional inputs with and without a
    value, element types of ours.
    """
    met = set().union(*(row.met() for row in nodes))
    optional = defs.OpSchema.FormalParameterOption.Optional
    inputs = [formal.name for formal in schema.inputs if formal.option == optional]
    presence = {f"{name} {there}" for name in inputs for there in (True, False)}
    taken = {formal.type_str for formal in schema.inputs}
    types = {
        f"{constraint.type_param_str} {TYPES[kind].name}"
        for constraint in schema.type_constraints
        if constraint.type_param_str in taken
        for kind in constraint.allowed_type_strs
        if kind in TYPES
    }
    never = {type_ for name, type_ in NEVER_INFERRED if name == schema.name}
    return {*schema.attributes, *presence, *types} - met - never


@pytest.mark.parametrize("schema", definitions(), ids=lambda s: f"{s.name}-{s.since_version}")
def test_agrees_in_every_version(schema: defs.OpSchema) -> None:
    nodes = list(every_version(schema, POOL))
    plain = min(nodes, key=lambda row: (len(row.proto.attribute), -len(row.arrays)))
    nodes += plain.retyped()
    assert not unmet(schema, nodes)
    Random(f"{schema.name} {schema.since_version}").shuffle(nodes)
    assert sum(islice(filter(None, map(agrees, nodes)), COMPARED))


@pytest.mark.parametrize("schema", definitions(True), ids=lambda s: f"{s.name}-{s.since_version}")
def test_what_onnx_has_withdrawn_is_refused(schema: defs.OpSchema) -> None:
    *_, last = (row for row in POOL if row.op_type == schema.name)
    with pytest.raises(ModelError, match="deprecated"):
        Session(last.at(schema.since_version).model())


def test_what_is_not_met_is_seen() -> None:
    """The twin."""
    schema = defs.get_schema("Clip", 13)
    rows = [node("Clip", 13, (2, 3)), node("MaxPool", 12, IMAGE, **POOLED)]
    nodes = list(every_version(schema, rows))
    assert unmet(schema, [*nodes, *nodes[0].retyped()]) == {"min True", "max True"}
    schema = defs.get_schema("LeakyRelu", 16)
    nodes = list(every_version(schema, [node("LeakyRelu", 16, (2, 3))]))
    assert unmet(schema, nodes) == {"alpha", "T bfloat16", "T float16", "T float64"}
