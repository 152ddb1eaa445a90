"""ONNX Runtime's operators of attention, against ONNX Runtime."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.frontends.support import runtime
from tests.operators.harness import Array
from tests.operators.microsoft.nodes import (
    Node,
    assert_as_onnx_runtime,
    assert_equal,
    found,
    node,
    refusal,
    steps,
)
from tests.operators.microsoft.test_fused import some

fused = partial(node, off=2e-5)
#: Texts, queries, heads, features of a head, and keys of the past.
N, S, H, F, P = 2, 4, 2, 3, 5
HIDDEN = H * F
X, W, BIAS = some(N, S, 5), some(5, 3 * HIDDEN), some(3 * HIDDEN)
Q, K, V = (some(N, S, HIDDEN, seed=seed) for seed in range(3))
PAST = some(2, N, H, P, F)
HIDE: dict[str, Any] = {"mask_filter_value": -1.5}
MASKS = [
    np.array([2, 3], "i4"),
    np.array([2, 3, 0, 4, 8, 0, 4, 8], "i4"),
    np.array([[2, 0, 1, -1], [1, 1, 1, 3]], "i4"),
    np.arange(N * S * S, dtype="i4").reshape(N, S, S) % 3,
]
LONG = np.array([[1, 1, 1, 1, 1, 1, 1, 0, 1], [0, 0, 1, 1, 1, 1, 1, 1, 1]], "i4")
BOTH = ("y", "present")
THREE = ("y", "keys", "values")

attention = partial(fused, "Attention", X, num_heads=H)
several = partial(fused, "MultiHeadAttention", fed=8, num_heads=H)
rotary = partial(fused, "RotaryEmbedding", fed=2)
COS, SIN = some(10, 4), some(10, 4, seed=1)
PLACES = np.array([[2, 0, 1], [3, 9, 9]], "i8")


def scale(number: float) -> Array:
    """Return a scale."""
    return np.array(number, "f4")


def integers(*more: Array | None, **attributes: Any) -> Node:
    """Return a QAttention; ``more`` are its inputs after the bias."""
    x, w = steps("u1", N, S, 5), steps("i1", 5, 3 * HIDDEN)
    return fused("QAttention", x, w, BIAS, *more, num_heads=H, **attributes)


NODES = [
    attention(W, BIAS),
    attention(W, unidirectional=1, scale=0.3),
    attention(W, BIAS, outputs=BOTH, rotary_embedding_dim=32),
    attention(W, BIAS, None, PAST, outputs=BOTH, unidirectional=1),
    attention(W, BIAS, LONG, PAST, outputs=BOTH, unidirectional=1, **HIDE),
    *(attention(W, BIAS, mask, **HIDE) for mask in (*MASKS, np.array([2, 3, 1, 0], "i4"))),
    attention(W, BIAS, MASKS[0], None, some(1, H, S, S), unidirectional=1),
    attention(W, BIAS, None, None, some(N, 1, S, S)),
    attention(some(5, 16), some(16), qkv_hidden_sizes=[HIDDEN, HIDDEN, 4]),
    attention(W, BIAS, np.zeros((N, S), "i4"), **HIDE),
    attention(W, BIAS, np.zeros((N, 1), "i4"), **HIDE),
    attention(W, BIAS, np.zeros((1, 1), "i4"), PAST, outputs=BOTH, unidirectional=1),
    attention(W, BIAS, None, PAST, None, np.array(5, "i4"), outputs=BOTH),
    integers(scale(0.02), scale(0.01), MASKS[0], np.array(120, "u1"), **HIDE),
    integers(
        scale(0.02),
        np.linspace(0.01, 0.02, 18, dtype="f4"),
        None,
        np.array(120, "u1"),
        np.arange(18, dtype="i1"),
        PAST,
        outputs=BOTH,
        unidirectional=1,
        scale=0.3,
    ),
    several(Q, K, V),
    several(Q, K, some(N, S, 10), some(2 * HIDDEN + 10), outputs=THREE),
    several(Q, K, V, unidirectional=1, scale=0.3),
    several(Q, some(N, 3, HIDDEN), some(N, 3, HIDDEN, seed=4), unidirectional=1),
    several(Q, some(N, 7, HIDDEN), some(N, 7, HIDDEN, seed=4), outputs=THREE),
    several(Q, some(N, H, 7, F), some(N, H, 7, F, seed=4), BIAS),
    *(several(Q, K, V, None, mask, **HIDE) for mask in MASKS),
    several(
        *(Q, K, V, BIAS, LONG, some(1, H, S, S + P), PAST[0], PAST[1]),
        outputs=THREE,
        unidirectional=1,
        **HIDE,
    ),
    several(
        *(t[:, :1] for t in (Q, K, V)), None, None, None, *PAST, outputs=THREE, unidirectional=1
    ),
    several(Q, K, V, None, MASKS[2], some(1, 1, S, S), outputs=("y", "", "", "qk"), **HIDE),
    several(Q, K, V, outputs=("y", "", "", "qk"), unidirectional=1),
    rotary(some(2, 3, 16), np.array([2], "i8"), COS, SIN),
    rotary(some(2, 3, 16), PLACES, COS, SIN, scale=2.0, is_packed_batching=1),
    rotary(some(2, 2, 3, 8), PLACES, COS, SIN, interleaved=1),
    rotary(some(2, 2, 3, 16), PLACES, COS, SIN, num_heads=2, rotary_embedding_dim=8),
    rotary(
        *(some(2, 3, 32), PLACES, COS, SIN),
        num_heads=2,
        rotary_embedding_dim=8,
        interleaved=1,
    ),
]


#: Queries, keys and values of ONNX's Attention, in heads and as rows, and a past.
APART = some(2, 6, 4, 8), some(2, 2, 5, 8), some(2, 2, 5, 6)
ROWS = some(2, 4, 48), some(2, 5, 16), some(2, 5, 12)
BEFORE = some(2, 2, 7, 8, seed=3), some(2, 2, 7, 6, seed=4)
COUNTS = np.array([3, 5], "i8")
IN_HEADS: dict[str, Any] = {"q_num_heads": 6, "kv_num_heads": 2}
onnx_attention = partial(fused, "Attention", fed=7, domain="")
at = partial(onnx_attention, onnx=25)
STANDARD = [
    *(
        row
        for opset in (23, 24, 25)
        for row in (
            onnx_attention(*ROWS, onnx=opset, **IN_HEADS),
            onnx_attention(*APART, some(4, 5), onnx=opset, scale=0.3, softmax_precision=1),
            onnx_attention(
                *(*ROWS, some(2, 6, 4, 12), *BEFORE),
                onnx=opset,
                outputs=THREE,
                is_causal=1,
                **IN_HEADS,
            ),
        )
    ),
    at(*APART, some(6, 4, 5)),
    at(*APART, some(2, 1, 4, 5) > -1, is_causal=1),
    at(*APART, some(4, 3) > -1),
    at(*APART, some(4, 3)),
    *(
        at(
            *(*APART, some(4, 5)),
            outputs=("y", "", "", "qk"),
            qk_matmul_output_mode=mode,
            softcap=2.0,
        )
        for mode in range(4)
    ),
    at(*APART, some(4, 5), None, None, COUNTS),
    at(*APART, None, None, None, COUNTS, is_causal=1),
    at(*APART, None, None, None, COUNTS, left_window_size=0, right_window_size=0),
    at(*APART, left_window_size=1, right_window_size=1),
    at(*APART, None, *BEFORE, outputs=THREE, left_window_size=2, is_causal=1),
]


@pytest.mark.parametrize("row", [*NODES, *STANDARD], ids=str)
def test_values_are_those_of_onnx_runtime(row: Node) -> None:
    assert_as_onnx_runtime(row)


def grouped(
    queries: int,
    past: int | None,
    total: int,
    last: list[int],
    packed: bool = False,
    more: tuple[Array | None, ...] = (),
    **attributes: Any,
) -> Node:
    """Return a GroupQueryAttention of 4 heads in 2 groups, of 16 features.

    Args:
        queries: the number of queries.
        past: the number of keys that the past has room for; None if there is no past.
        total: the number of keys after the node, at most.
        last: for each text, the index of its last key.
        packed: whether queries, keys and values are one input.
        more: the inputs from cosines on.
        attributes: the node's attributes.
    """
    q, k, v = some(2, queries, 64), some(2, queries, 32), some(2, queries, 32, seed=1)
    own = [np.concatenate([q, k, v], -1), None, None] if packed else [q, k, v]
    before = [None if past is None else some(2, 2, past, 16, seed=seed) for seed in (2, 3)]
    known = [np.array(last, "i4"), np.array([total], "i4")]
    outputs = (*THREE, *(["qk"] if attributes.get("qk_output") else []))
    return fused(
        "GroupQueryAttention",
        *(*own, *before, known[0], known[1], *more),
        fed=6,
        outputs=outputs,
        num_heads=4,
        kv_num_heads=2,
        **attributes,
    )


TURNS = some(10, 8), some(10, 8, seed=1)
TURNED: dict[str, Any] = {"more": TURNS, "do_rotary": 1}
GROUPED = [
    grouped(4, None, 4, [3, 3]),
    grouped(4, None, 4, [3, 1]),
    grouped(4, None, 4, [3, 3], packed=True, **TURNED),
    grouped(4, 0, 4, [3, 3], scale=0.3),
    grouped(4, 9, 4, [3, 3]),
    grouped(1, 5, 6, [5, 5]),
    grouped(1, 5, 6, [5, 3], local_window_size=2),
    grouped(1, 9, 6, [5, 3], causal=0),
    grouped(4, None, 4, [3, 3], local_window_size=2, softcap=0.5),
    grouped(4, None, 4, [3, 3], causal=0, more=(None, None, None, some(2, 1, 4, 4))),
    grouped(1, 5, 6, [5, 3], more=(None, None, None, some(1, 4, 1, 6)), softcap=0.5),
    grouped(4, None, 4, [3, 3], smooth_softmax=1),
    grouped(4, None, 4, [3, 3], more=(None, None, None, None, some(4)), qk_output=2),
    grouped(1, 7, 6, [5, 3], qk_output=1),
    grouped(4, None, 4, [3, 3], qk_output=1, softcap=0.5),
    grouped(1, 7, 6, [5, 3], qk_output=2),
    grouped(4, None, 4, [3, 3], rotary_interleaved=1, **TURNED),
    grouped(1, 5, 6, [5, 3], **TURNED),
    grouped(
        *(4, None, 4, [3, 3]), more=(*TURNS, np.array([[3, 1, 2, 1], [1, 5, 6, 2]])), do_rotary=1
    ),
    grouped(1, 5, 6, [5, 3], more=(*TURNS, np.array([[3], [1]])), do_rotary=1),
]


@pytest.mark.parametrize("row", GROUPED, ids=str)
def test_grouped_queries_are_those_of_onnx_runtime(row: Node) -> None:
    """What ONNX Runtime leaves unspecified is not compared: rows after a text's last key."""
    feeds = row.fed()
    expected, outputs = runtime(row.model(), feeds, optimised=False), found(row)
    for text, last in enumerate(feeds["x5"]):
        own = [
            [y[text, : last + 1], keys[text, :, : last + 1], values[text, :, : last + 1], *more]
            for y, keys, values, *more in (expected, outputs)
        ]
        assert_equal(row, *own)


@pytest.mark.parametrize("bias", [None, BIAS])
def test_packed_heads_are_those_of_separate_inputs(bias: Array | None) -> None:
    """ONNX Runtime packs them for other devices only."""
    q, k, v = (x.reshape(N, S, H, F) for x in (Q, K, V))
    expected = found(several(Q, K, V, bias))
    for own in ((np.stack([q, k, v], 3), None), (Q, np.stack([k, v], 3))):
        row = several(*own, None, bias)
        assert_equal(row, expected, found(row))


REFUSED = [
    (attention(W, BIAS, do_rotary=1), "do_rotary is 1"),
    (attention(W, BIAS, past_present_share_buffer=1), "past_present_share_buffer is 1"),
    (attention(W, BIAS, np.ones((N, 1, 8, 8), "i4")), "a mask of 4 dims"),
    (attention(W, BIAS, qkv_hidden_sizes=[6, 6, 5]), "qkv_hidden_sizes [6, 6, 5]"),
    (attention(W, BIAS, do_wonders=1), "attribute 'do_wonders' is unknown"),
    (fused("Attention", X, W, BIAS, num_heads=4), "6 elements in 4 heads"),
    (fused("Attention", X, W, BIAS), "6 elements in 0 heads"),
    (attention(W, BIAS, np.ones((N, 3), "i4")), "for 4 keys"),
    (several(Q, K, V, None, np.array([2, 3, 1], "i4")), "for 2 texts"),
    (several(Q, K, V, None, None, None, PAST[0]), "past keys without values"),
    (several(Q), "queries without keys or values"),
    (several(Q, some(N, 7, HIDDEN), some(N, 7, HIDDEN), unidirectional=1), "unidirectional"),
    (grouped(1, 5, 7, [5, 5]), "7 keys, 5 of them from the past"),
    (grouped(4, None, 4, [3, 3], more=(None,) * 7 + (some(16), some(16))), "q_norm_weight"),
    (
        grouped(4, None, 4, [3, 3], causal=0, local_window_size=2),
        "local_window_size 2 with causal 0",
    ),
    (grouped(4, None, 4, [3, 3], local_window_size=0), "local_window_size 0"),
    (rotary(some(2, 3, 16), PLACES, some(10, 9), some(10, 9), num_heads=1), "9 angles for 16"),
]


@pytest.mark.parametrize(("row", "text"), REFUSED, ids=str)
def test_what_is_not_taken_is_an_error_that_names_the_node(row: Node, text: str) -> None:
    message = refusal(row)
    assert text in message
    assert row.op_type in message
