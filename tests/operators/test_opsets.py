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
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, defs

from libdesc.registry import registry
from ops.binary import FLOORED_FLOATS
from tests.libraries.slow import ALL
from tests.operators.harness import check_close
from tests.operators.nodes import QUANTIZED, RECURRENT, SAMPLED
from tests.operators.test_elementwise_spellings import COUNTS, X
from tests.operators.test_elementwise_spellings import NODES as ELEMENTWISE
from tests.operators.test_elementwise_spellings import Node as Fed
from tests.operators.test_spellings import IMAGE, NODES, SERIES, STATISTICS, Node, floats
from tests.operators.test_spellings import integers as ints
from tests.operators.versions import FIRST, TYPES, Version, versions
from vtensor.errors import ModelError
from vtensor.language.operators import OPERATORS
from vtensor.runtime.session import Session

Array = np.ndarray[Any, Any]

TIES = COUNTS.astype(np.float32)
SMALL = 1 + np.abs(np.sin(X[:, :, :2, 0]))
POOLED = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}
AXES = {"axes": [1], "keepdims": 0}
PLACES = ints(1, 5, 7, 11).reshape(1, 1, 2, 2)
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

#: What the tests of spellings leave out.
MORE: list[Node | Fed] = [
    *(Fed(op, 7, (TIES,), {"axis": 1, "keepdims": 0}) for op in ("ArgMax", "ArgMin")),
    *(Fed(op, 12, (TIES,), {"select_last_index": 1}) for op in ("ArgMax", "ArgMin")),
    Node("AveragePool", 7, (IMAGE,), {**POOLED, "count_include_pad": 1}),
    Node("BatchNormalization", 7, (IMAGE, *STATISTICS), {"momentum": 0.5, "spatial": 1}),
    Node("BatchNormalization", 9, (IMAGE, *STATISTICS), {"momentum": 0.5}),
    Node("BatchNormalization", 14, (IMAGE, *STATISTICS), {"momentum": 0.5, "training_mode": 0}),
    *(
        Fed(op, 19, (X, *more), {"saturate": 0, **to})
        for op, more, to in (
            ("Cast", (), {"to": TensorProto.FLOAT16}),
            ("CastLike", (COUNTS,), {}),
        )
    ),
    Fed("Cast", 24, (X,), {"to": TensorProto.INT8, "round_mode": "nearest"}),
    Fed("CastLike", 24, (X, COUNTS), {"round_mode": "down"}),
    Node("ConvTranspose", 7, (IMAGE, floats(6, 4, 3, 2)), {"kernel_shape": [3, 2]}),
    Node("Dropout", 7, (IMAGE,), {"ratio": 0.3}),
    Node("Dropout", 12, (IMAGE,), {"seed": 3}),
    Node(
        "GroupNormalization", 21, (IMAGE, floats(6), floats(6)), {"num_groups": 3, "epsilon": 0.1}
    ),
    Node(
        "GroupNormalization", 21, (SERIES, floats(6), floats(6)), {"num_groups": 2, "stash_type": 1}
    ),
    Node("LayerNormalization", 17, (IMAGE, floats(8)), {"stash_type": 1}),
    Node("LpPool", 18, (IMAGE,), {"kernel_shape": [2, 3], "dilations": [2, 1]}),
    Node("MaxPool", 7, (IMAGE,), {"kernel_shape": [3, 2], "auto_pad": "SAME_LOWER"}),
    Fed("MaxPool", 8, (TIES[None, :, :, :],), {**POOLED, "storage_order": 1}),
    Node(
        "MaxUnpool",
        9,
        ((1, 1, 2, 2), PLACES),
        {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 1, 0, 0]},
    ),
    Node(
        "MaxUnpool",
        9,
        ((1, 1, 2, 2), PLACES, ints(1, 1, 5, 6)),
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    Node("Pad", 18, (IMAGE, ints(1, 0, 2, 1), np.array(3, "f4"), ints(2, -1))),
    Node("RMSNormalization", 23, (IMAGE, floats(8)), {"stash_type": 1}),
    *(Fed(f"Reduce{one}", 7, (SMALL,), AXES) for one in REDUCTIONS),
    *(Fed(f"Reduce{one}", 7, (SMALL,)) for one in REDUCTIONS),
    *(
        Fed(f"Reduce{one}", 18, (SMALL, *axes), {"noop_with_empty_axes": empty, **keep}, n)
        for one in REDUCTIONS
        for axes, n in (((), 0), ((ints(0, -1),), 1))
        for empty in (0, 1)
        for keep in ({}, {"keepdims": 0})
    ),
    Fed("ReduceSum", 13, (TIES, ints(1)), {"noop_with_empty_axes": 1, "keepdims": 0}, 1),
    Fed("Resize", 11, (X, np.zeros(0, "f4"), np.array([1, 1, 2, 3], "f4")), constants=2),
    Fed("Resize", 13, (X, None, None, ints(2, 3, 6, 7)), constants=1),
    Fed("Resize", 13, (X, np.zeros(0, "f4"), None, ints(2, 3, 6, 7)), constants=1),
    Fed("Resize", 13, (X, None, np.array([1, 1, 2, 3], "f4")), constants=1),
    Node("ScatterElements", 11, ((3, 4), ints(1, -1).reshape(1, 2), (1, 2)), {"axis": -2}),
    Node("Slice", 10, (IMAGE, ints(1, 2), ints(2, 4))),
    Node("SpaceToDepth", 28, ((2, 3, 6, 4),), {"blocksize": 2, "mode": "CRD"}),
    Node("Split", 7, (IMAGE,), {"axis": 1, "split": [2, 4]}, outputs=2),
    Node("Squeeze", 7, ((1, 3, 1, 4),), {"axes": [0, 2]}),
    Node("TopK", 10, (IMAGE, ints(2)), {"axis": 1}, outputs=2),
    Node("TopK", 11, (IMAGE, ints(1)), {"sorted": 0}, outputs=2),
    Node("Upsample", 9, ((1, 2, 3, 4), np.array([1, 1, 2, 2], "f4")), {"mode": "linear"}),
]


def table() -> list[str]:
    """ONNX's names of the operators in ``docs/operators.md``."""
    registry()
    ours = [info for info in OPERATORS.values() if info.cls.__module__.startswith("ops.")]
    return sorted({spelling.op_type for info in ours for spelling in info.onnx})


def definitions(deprecated: bool = False) -> list[defs.OpSchema]:
    """All versions of all operators of the table."""
    return [s for op_type in table() for s in versions(op_type) if s.deprecated == deprecated]


def every_version(schema: defs.OpSchema, nodes: Sequence[Node | Fed]) -> Iterator[Version]:
    """The nodes that a definition allows, as they are there."""
    for node in nodes:
        if node.op_type == schema.name:
            opset = max(FIRST, schema.since_version)
            version = Version.of(node.model(), node.feeds(), opset)
            if version.fits():
                yield version


POOL: list[Node | Fed] = [*SAMPLED, *QUANTIZED, *ELEMENTWISE, *NODES, *MORE, *RECURRENT]


#: Nodes of each version whose values are compared, of those that others can run.
COMPARED = None if ALL else 3


#: ONNX's own inference reads no axes of 32 bits.
NEVER_INFERRED = {("Pad", "Tind int32")}


def check(version: Version) -> bool:
    """VTensor agrees with the others; false where these say nothing."""
    if has_no_rule(version):
        with pytest.raises(ModelError, match="fmod"):
            Session(version.model())
        return False
    expected = version.expected()
    if expected is None:
        return False
    with Session(version.model(), threads=1) as session:
        found = session.run(None, dict(version.feeds))
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), version
        mine, theirs = one.astype(np.float64), other.astype(np.float64)
        neither = (np.isnan(mine) & np.isnan(theirs)) | beyond(version, one)
        check_close(np.where(neither, 0, mine), np.where(neither, 0, theirs), bound(version))
    return True


def has_no_rule(version: Version) -> bool:
    """Return whether the node is a remainder of floats that its version does not define."""
    floored = version.node.op_type == "Mod" and not any(a.i for a in version.node.attribute)
    [x, *_] = version.feeds.values()
    return floored and version.opset < FLOORED_FLOATS and x.dtype.kind not in "iu"


def beyond(version: Version, result: Array) -> Array:
    """Return where a float is cast to an integer that cannot hold it, which ONNX leaves open."""
    [x, *_] = version.feeds.values()
    if not version.node.op_type.startswith("Cast") or result.dtype.kind not in "iu":
        return np.zeros(result.shape, bool)
    limits, whole = np.iinfo(result.dtype), np.trunc(x.astype(np.float64))
    inside: Array = (whole >= limits.min) & (whole <= limits.max)
    return ~inside


def bound(version: Version) -> float:
    """By how much a result may be off: as much as its narrowest element type."""
    arrays = [*version.feeds.values(), *version.known.values()]
    names = {array.dtype.name for array in arrays}
    return 2e-2 if "bfloat16" in names else 4e-3 if "float16" in names else 1e-5


def unmet(schema: defs.OpSchema, nodes: Sequence[Version]) -> set[str]:
    """What of a definition no node shows: attributes, optional inputs with and without a value,
    element types of ours.
    """
    met = set().union(*(version.met() for version in nodes))
    optional = defs.OpSchema.FormalParameterOption.Optional
    inputs = [one.name for one in schema.inputs if one.option == optional]
    presence = {f"{one} {there}" for one in inputs for there in (True, False)}
    taken = {one.type_str for one in schema.inputs}
    types = {
        f"{one.type_param_str} {TYPES[kind].name}"
        for one in schema.type_constraints
        if one.type_param_str in taken
        for kind in one.allowed_type_strs
        if kind in TYPES
    }
    never = {type_ for name, type_ in NEVER_INFERRED if name == schema.name}
    return {*schema.attributes, *presence, *types} - met - never


@pytest.mark.parametrize("schema", definitions(), ids=lambda s: f"{s.name}-{s.since_version}")
def test_agrees_in_every_version(schema: defs.OpSchema) -> None:
    nodes = list(every_version(schema, POOL))
    plain = min(nodes, key=lambda one: (len(one.node.attribute), -one.given()))
    nodes += plain.retyped()
    assert not unmet(schema, nodes)
    Random(f"{schema.name} {schema.since_version}").shuffle(nodes)
    assert sum(islice(filter(None, map(check, nodes)), COMPARED))


@pytest.mark.parametrize("schema", definitions(True), ids=lambda s: f"{s.name}-{s.since_version}")
def test_what_onnx_has_withdrawn_is_refused(schema: defs.OpSchema) -> None:
    *_, node = (node for node in POOL if node.op_type == schema.name)
    with pytest.raises(ModelError, match="deprecated"):
        Session(Version.of(node.model(), node.feeds(), schema.since_version).model())


def test_what_is_not_met_is_seen() -> None:
    """The twin."""
    schema = defs.get_schema("Clip", 13)
    nodes = list(
        every_version(schema, [Node("Clip", 13, ((2, 3),)), Node("MaxPool", 12, (IMAGE,), POOLED)])
    )
    assert unmet(schema, [*nodes, *nodes[0].retyped()]) == {"min True", "max True"}
    schema = defs.get_schema("LeakyRelu", 16)
    nodes = list(every_version(schema, [Node("LeakyRelu", 16, ((2, 3),))]))
    assert unmet(schema, nodes) == {"alpha", "T bfloat16", "T float16", "T float64"}
