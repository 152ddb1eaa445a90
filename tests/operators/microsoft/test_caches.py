"""Attention with caches that earlier runs wrote, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

from tests.frontends.support import runtime
from tests.operators.harness import Array
from tests.operators.microsoft.nodes import (
    Node,
    assert_as_onnx_runtime,
    assert_equal,
    found,
    refusal,
)
from tests.operators.microsoft.test_attention import (
    BIAS,
    BOTH,
    LONG,
    THREE,
    TURNED,
    TURNS,
    F,
    H,
    K,
    N,
    Q,
    S,
    V,
    W,
    attention,
    fused,
    grouped,
    several,
)
from tests.operators.microsoft.test_fused import some
from vtensor import Session
from vtensor.errors import VTensorError

#: A cache with room for 12 keys, of which 5 are there; the rest is noise.
ROOM = some(N, H, 12, F), some(N, H, 12, F, seed=2)
ONE = Q[:, :1], K[:, :1], V[:, :1]
QK = (*THREE, "qk")
#: For each of two beams, the beam that has each key of the past.
BEAMS = np.random.default_rng(0).integers(0, 2, (1, N, 12), "i4")
FIVE = np.array([5], "i4")

decoder = partial(
    fused,
    "DecoderMaskedMultiHeadAttention",
    fed=10,
    num_heads=H,
)
SHARED = {"past_present_share_buffer": 1}
in_room = partial(several, outputs=THREE, fed=10)

NODES = [
    in_room(*ONE, None, None, None, *ROOM, FIVE),
    in_room(Q, K, V, BIAS, None, None, *ROOM, FIVE[0, ...], unidirectional=1),
    in_room(Q, K, V, BIAS, None, None, *ROOM, FIVE * 0),
    in_room(Q, K, V, BIAS, np.array([7, 9], "i4"), None, *ROOM, FIVE, scale=0.3),
    in_room(
        *(Q, K, V, None, LONG, some(1, H, S, 9), *ROOM, FIVE),
        outputs=QK,
        unidirectional=1,
        mask_filter_value=-1.5,
    ),
    in_room(*ONE, None, None, None, *ROOM, FIVE, BEAMS),
    in_room(Q, K, V, None, None, None, *ROOM, FIVE, BEAMS, unidirectional=1),
    in_room(Q, K, V, None, None, None, None, None, FIVE),
    decoder(*ONE),
    decoder(*ONE, None, None, *ROOM, FIVE, outputs=THREE, **SHARED),
    decoder(
        *(*ONE, LONG[:, :6].copy(), some(1, H, 1, 6), *ROOM, FIVE, np.array([2], "i4"), BEAMS),
        BIAS,
        outputs=QK,
        output_qk=1,
        scale=0.3,
        mask_filter_value=-2.0,
        **SHARED,
    ),
    decoder(
        *(ONE[0], some(N, H, 7, F), some(N, H, 7, F, seed=4), LONG[:, :7].copy()),
        outputs=("y", "", "", "qk"),
        output_qk=1,
    ),
]


@pytest.mark.parametrize("row", NODES, ids=str)
def test_values_are_those_of_onnx_runtime(row: Node) -> None:
    assert_as_onnx_runtime(row)


def held(keys: int, capacity: int, window: int) -> int:
    """Return how many of so many keys a cache holds, as ONNX Runtime's description says."""
    block = capacity - window + 1
    return keys if keys <= capacity else keys - block * -(-(keys - capacity) // block)


def chunk(*counts: int, more: Sequence[Array | None] = ()) -> tuple[Array | None, ...]:
    """Return the inputs from cosines on of a chunk with so many queries of each text."""
    return (*more, *[None] * (9 - len(more)), np.array(counts, "i4"))


def integers(row: Node, scale: Array, kind: str, bits: int = 8) -> Node:
    """Return a GroupQueryAttention with a past of integers; those of 4 bits are two in a byte."""
    past = [np.rint(x * 40).astype("i1") for x in row.feeds[3:5] if x is not None]
    if bits == 4:
        past = [x.view("u1")[..., :8].copy() for x in past]
    scales = [None] * (5 - max(len(row.constants) - 1, 0)), [scale, scale * 2]
    return replace(
        row,
        feeds=(*row.feeds[:3], *past, *row.feeds[5:]),
        constants=(*row.constants, *scales[0], *scales[1]),
        attributes={
            **row.attributes,
            "kv_cache_bit_width": bits,
            "k_quant_type": kind,
            "v_quant_type": kind,
        },
    )


ONE_SCALE = np.array([0.02], "f4")
SCALES = np.linspace(0.01, 0.04, 32, dtype="f4").reshape(1, 2, 1, 16)
FAR: dict[str, Any] = {"more": (some(30, 8), some(30, 8, seed=1)), "do_rotary": 1}


def windowed(queries: int, capacity: int, window: int, *ends: int, **attributes: Any) -> Node:
    """Return a GroupQueryAttention with a cache of the latest keys; texts end at ``ends``."""
    last = [end - 1 for end in ends]
    by = {"local_window_size": window, "sliding_window_cache": 1, **attributes}
    row = grouped(queries, capacity, max(ends), last, **by)
    feeds = tuple(None if x is None else x[: max(len(ends), 1)] for x in row.feeds)
    return replace(row, feeds=feeds)


#: Nodes; for each text, how many of its queries count.
GROUPED: list[tuple[Node, tuple[int, ...]]] = [
    (grouped(4, 12, 8, [3, 1], more=chunk(4, 2)), (4, 2)),
    (grouped(3, 12, 8, [7, 4], more=chunk(3, 1, more=TURNS), do_rotary=1), (3, 1)),
    (grouped(3, 5, 10, [7, 4], more=chunk(3, 1), local_window_size=2), (3, 1)),
    (grouped(1, 9, 8, [7, 4], packed=True, more=chunk(1, 0)), (1, 0)),
    (integers(grouped(1, 5, 6, [5, 5]), ONE_SCALE, "PER_TENSOR"), (1, 1)),
    (integers(grouped(1, 9, 6, [5, 3], softcap=0.5), SCALES, "PER_CHANNEL"), (1, 1)),
    (integers(grouped(4, 0, 4, [3, 3], **TURNED), SCALES, "PER_CHANNEL"), (4, 4)),
    (integers(grouped(1, 5, 6, [5, 5]), ONE_SCALE * 10, "PER_TENSOR", 4), (1, 1)),
    (integers(grouped(4, 0, 4, [3, 3]), SCALES * 10, "PER_CHANNEL", 4), (4, 4)),
    (integers(windowed(1, 5, 3, 9, 7), ONE_SCALE, "PER_TENSOR"), (1, 1)),
    *(
        (windowed(queries, capacity, window, *ends, **FAR), (queries,) * len(ends))
        for capacity, window in ((5, 5), (9, 3), (4, 1))
        for queries, *ends in ((1, 20, 4), (7, 7, 7), (3, 9))
    ),
    (windowed(1, 6, 4, 8, 7, more=(None, None, None, some(2, 4, 1, 8))), (1, 1)),
    (windowed(1, 6, 4, 8, 7, more=(None, None, None, some(1, 1, 1, 8))), (1, 1)),
    (windowed(3, 6, 4, 8, 6, more=chunk(3, 1)), (3, 1)),
]


@pytest.mark.parametrize(("row", "counts"), GROUPED, ids=str)
def test_grouped_queries_are_those_of_onnx_runtime(row: Node, counts: tuple[int, ...]) -> None:
    """What ONNX Runtime leaves unspecified is not compared: padding, and unused rows of caches."""
    feeds = row.fed()
    expected, outputs = runtime(row.model(), feeds, optimised=False), found(row)
    capacity, window = expected[1].shape[2], row.attributes.get("local_window_size", 0)
    for text, count in enumerate(counts):
        keys = int(feeds["x5"][text]) + 1
        if row.attributes.get("sliding_window_cache"):
            keys = held(keys, capacity, window)
        own = [
            [y[text, :count], keys_of[text, :, :keys], values[text, :, :keys]]
            for y, keys_of, values in (expected, outputs)
        ]
        assert_equal(row, *own)


def opened(row: Node, **sizes: Mapping[int, str]) -> ModelProto:
    """Return the node's model with open sizes: for an input, names by axis."""
    model = row.model()
    for port in model.graph.input:
        for axis, name in sizes.get(port.name, {}).items():
            port.type.tensor_type.shape.dim[axis].dim_param = name
    for port in model.graph.output:
        port.type.tensor_type.elem_type = TensorProto.FLOAT
    return model


def assert_steps(model: ModelProto, feeds: Sequence[dict[str, Array]], valid: Any = None) -> None:
    """Check that the runs of a decoder give ONNX Runtime's values, and end with known plans.

    ``feeds`` are the inputs of each run; ``valid`` returns the part of outputs that is compared.
    """
    origins = []
    with Session(model, threads=1) as session:
        for given in feeds:
            outputs, expected = session.run(None, given), runtime(model, given)
            if valid is not None:
                outputs, expected = valid(given, outputs), valid(given, expected)
            for output, wanted in zip(outputs, expected, strict=True):
                assert output.dtype == wanted.dtype
                np.testing.assert_allclose(
                    output.astype("f8"), wanted.astype("f8"), rtol=0, atol=1e-5
                )
            assert not [step.op for step in session.plan.steps if step.python]
            origins.append(session.plan.origin.way)
    assert set(origins[3:]) <= {"specialised", "in memory"}


def test_attention_decodes_with_a_past_that_grows() -> None:
    row = attention(W, BIAS, LONG, some(2, N, H, 5, F), outputs=BOTH, unidirectional=1)
    row = replace(row, feeds=(*row.feeds, W, BIAS, *row.constants[2:]), constants=())
    model = opened(row, x0={1: "S"}, x3={1: "T"}, x4={3: "P"})
    assert_steps(
        model,
        [
            {
                **row.fed(),
                "x0": some(N, new, 5),
                "x3": np.ones((N, past + new), "i4"),
                "x4": some(2, N, H, past, F),
            }
            for past, new in ((0, 4), (4, 1), (5, 1), (6, 1), (9, 1))
        ],
    )


@pytest.mark.parametrize("causal", [0, 1])
def test_several_heads_decode_with_a_past_that_grows(causal: int) -> None:
    past = some(N, H, 5, F)
    row = several(Q, K, V, BIAS, LONG, None, past, past, outputs=THREE, unidirectional=causal)
    sizes = {name: {1: "S"} for name in ("x0", "x1", "x2")}
    model = opened(row, **sizes, x4={1: "T"}, x6={2: "P"}, x7={2: "P"})
    assert_steps(
        model,
        [
            {
                **row.fed(),
                **{f"x{i}": some(N, new, H * F, seed=i) for i in range(3)},
                "x4": np.ones((N, size + new), "i4"),
                **{f"x{i}": some(N, H, size, F, seed=i) for i in (6, 7)},
            }
            for size, new in ((0, 4), (4, 1), (5, 1), (6, 1), (9, 1))
        ],
    )


def test_several_heads_decode_in_a_cache_with_room() -> None:
    row = in_room(*ONE, None, None, None, *ROOM, FIVE)
    lengths = [{**row.fed(), "x8": np.array([at], "i4")} for at in (0, 1, 2, 5, 11)]
    assert_steps(row.model(), lengths)
    with (
        Session(row.model(), threads=1) as session,
        pytest.raises(VTensorError, match="TensorScat"),
    ):
        session.run(None, {**row.fed(), "x8": np.array([12], "i4")})


@pytest.mark.parametrize("causal", [0, 1])
def test_onnx_attention_decodes_with_a_past_that_grows(causal: int) -> None:
    q, *past = some(2, 6, 1, 8), some(2, 2, 5, 8), some(2, 2, 5, 8)
    inputs = q, q[:, :2], q[:, :2], some(1, 6), *past
    row = fused("Attention", *inputs, fed=6, domain="", onnx=24, outputs=THREE, is_causal=causal)
    sizes = {name: {2: "S"} for name in ("x0", "x1", "x2")}
    model = opened(row, **sizes, x3={0: "S", 1: "T"}, x4={2: "P"}, x5={2: "P"})
    assert_steps(
        model,
        [
            {
                "x0": some(2, 6, new, 8),
                **{f"x{i}": some(2, 2, new, 8, seed=i) for i in (1, 2)},
                "x3": some(new, size + new),
                **{f"x{i}": some(2, 2, size, 8, seed=i) for i in (4, 5)},
            }
            for size, new in STEPS
        ],
    )


def test_onnx_rotation_is_specialised() -> None:
    by = some(2, 2, 3, 8), some(10, 4), some(10, 4, seed=1), np.zeros((2, 3), "i8")
    row = fused("RotaryEmbedding", *by)
    row = replace(row, feeds=(*row.feeds, *row.constants), constants=(), domain="", opset=23)
    assert_steps(
        opened(row, x0={2: "S"}, x3={1: "S"}),
        [
            {**row.fed(), "x0": some(2, 2, new, 8), "x3": np.full((2, new), at, "i8")}
            for at, new in STEPS
        ],
    )


def latest(given: Mapping[str, Array], outputs: Sequence[Array]) -> list[Array]:
    """Return the part of outputs of a GroupQueryAttention that is specified, all texts alike."""
    count = min(int(given["x5"][0]) + 1, outputs[1].shape[2])
    return [outputs[0], *(x[:, :, :count] for x in outputs[1:])]


def steps_of_groups(
    row: Node, past: Callable[[int], int], at: Sequence[tuple[int, int]]
) -> list[dict[str, Array]]:
    """Return inputs of runs: ``at`` has numbers of keys of the past, and of new ones."""
    kind = row.feeds[3].dtype if row.feeds[3] is not None else "f4"
    return [
        {
            "x0": some(2, new, 64),
            **{f"x{i}": some(2, new, 32, seed=i) for i in (1, 2)},
            **{f"x{i}": (some(2, 2, past(size), 16) * 20).astype(kind) / 20 for i in (3, 4)},
            "x5": np.array([size + new - 1] * 2, "i4"),
            "x6": np.array([size + new], "i4"),
        }
        for size, new in at
    ]


PORTS = {**{f"x{i}": {1: "S"} for i in range(3)}, **{f"x{i}": {2: "P"} for i in (3, 4)}}
STEPS = [(0, 4), (4, 1), (5, 1), (6, 1), (9, 1)]


def total_fed(row: Node) -> Node:
    """Return a GroupQueryAttention whose total number of keys is an input of a run."""
    return replace(row, feeds=(*row.feeds, row.constants[0]), constants=row.constants[1:])


def test_grouped_queries_decode_with_a_total_that_is_an_input() -> None:
    row = total_fed(grouped(1, 5, 6, [5, 5], **FAR))
    assert_steps(opened(row, **PORTS), steps_of_groups(row, lambda size: size, STEPS), latest)


def test_grouped_queries_decode_in_a_cache_with_room() -> None:
    row = total_fed(grouped(1, 16, 6, [5, 5], **FAR))
    assert_steps(opened(row, **PORTS), steps_of_groups(row, lambda _: 16, STEPS), latest)


def test_grouped_queries_decode_in_a_cache_of_a_window() -> None:
    row = total_fed(windowed(1, 4, 4, 6, 6, **FAR))
    assert_steps(opened(row, **PORTS), steps_of_groups(row, lambda _: 4, STEPS), latest)


REFUSED = [
    (in_room(*ONE, None, None, None, *ROOM, FIVE, outputs=QK), "no mask tells"),
    (in_room(*ONE, None, None, None, *ROOM, None, BEAMS), "without past_sequence_length"),
    (grouped(3, 12, 8, [7, 4], more=chunk(3, 1), causal=0), "or with causal 0"),
    (grouped(4, None, 4, [3, 3], more=chunk(4, 2)), "query_seqlens without past keys"),
    (windowed(1, 3, 4, 6, 6), "a window of 4 keys in a cache of 3"),
    (
        grouped(4, None, 4, [3, 3], local_window_size=2, sliding_window_cache=1),
        "sliding_window_cache without past keys",
    ),
    (
        integers(grouped(1, 5, 6, [5, 5]), ONE_SCALE, "PER_TENSOR", 2),
        "k_quant_type PER_TENSOR without a past of s8 or u8 and a scale",
    ),
    (grouped(4, None, 4, [3, 3], k_quant_type="PER_TENSOR"), "k_quant_type PER_TENSOR"),
]


@pytest.mark.parametrize(("row", "text"), REFUSED, ids=str)
def test_what_is_not_taken_is_an_error_that_names_the_node(row: Node, text: str) -> None:
    message = refusal(row)
    assert text in message
    assert row.op_type in message
