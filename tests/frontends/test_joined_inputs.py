"""Bodies that join dims which nothing outside joins: inputs keep the dims that were promised."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from tests.frontends.support import Array, f32, model, runtime, same_as_runtime
from tests.libraries.slow import slow_but
from vtensor import Session
from vtensor.errors import InputError

HEADS, WIDTH, VOCABULARY = 2, 4, 11

#: Two bodies of which one joins what is given, and the condition that decides.
BRANCHES = """If(c) < then_branch = a() => (float[k, 4] t) { t = Concat<axis = 0>(p, x) },
                else_branch = b() => (float[k, 4] t) { t = Identity(x) } >"""
INPUTS = "float[s, 4] x, float[q, 4] p"

#: Models by name, and whose values decide: what a body joins, nothing outside does.
MODELS = {
    "value": f"g ({INPUTS}, bool c) => (float[k, 4] y) {{ y = {BRANCHES} }}",
    "size": f"""g ({INPUTS}) => (float[k, 4] y) {{
        h = Shape<start = 0, end = 1>(p) z = Constant<value_ints = [2]>() c = Greater(h, z)
        y = {BRANCHES} }}""",
    "nested": f"""g ({INPUTS}, bool c, bool d) => (float[k, 4] y) {{
        y = If(d) < then_branch = i() => (float[k, 4] e) {{ f = Neg(x) e = {BRANCHES} }},
            else_branch = j() => (float[k, 4] e) {{ e = Concat<axis = 0>(x, x, p) }} > }}""",
    "loop": f"""g ({INPUTS}, int64 c) => (float[n, 4] y) {{
        y = Loop(c, , x) < body = b(int64 i, bool d, float[n, 4] u) => (bool d, float[m, 4] v) {{
            v = Concat<axis = 0>(u, p) }} > }}""",
    "scan": """g (float[s, 4] x, float[s, 4] p, float[q, 4] w, bool c) => (float[k, 4] y) {
        y = If(c) < then_branch = a() => (float[k, 4] t) {
            t = Scan(x) < num_scan_inputs = 1, body = b(float[4] r) => (float[4] v) {
                o = ReduceSum<keepdims = 0>(w) m = ReduceMean<keepdims = 0>(p) n = Add(r, o)
                v = Mul(n, m) } > },
            else_branch = d() => (float[k, 4] t) { t = Concat<axis = 0>(w, p) } > }""",
    "matmul": """g (float[a, b] x, float[e, f] p, bool c) => (float[g, h] y) {
        y = If(c) < then_branch = i() => (float[g, h] t) { t = MatMul(x, p) },
            else_branch = j() => (float[g, h] t) { u = Transpose(p) t = Mul(x, u) } > }""",
    "itself": """g (float[a, b] x, float[e, f] p, bool c) => (float[a, b] y) {
        y = If(c) < then_branch = i() => (float[a, b] t) { u = Transpose(x) t = Add(x, u) },
            else_branch = j() => (float[a, b] t) { t = Add(x, p) } > }""",
    "delivered": f"""g ({INPUTS}, bool c) => (float[k, 4] y, float[q, 4] z) {{
        y = {BRANCHES} z = Relu(p) }}""",
    "convolved": """g (float[n, 3, h, w] x, float[m, 3, i, j] p, bool c) => (float[k, 2, u, v] y) {
        y = If(c) < then_branch = i() => (float[k, 2, u, v] t) {
            r = Add(x, p) t = Conv<kernel_shape = [3, 3]>(r, f) },
            else_branch = j() => (float[k, 2, u, v] t) {
            r = Concat<axis = 0>(p, x) t = Conv<kernel_shape = [3, 3]>(r, f) } > }""",
}


def feeds_of(name: str, wide: int = 0) -> list[dict[str, Array]]:
    """Return feeds that take each body of a model, the sizes that are free larger by ``wide``."""
    known: dict[str, dict[str, tuple[int, ...]]] = {
        "scan": {"x": (2 + wide, 4), "p": (2 + wide, 4), "w": (1 + wide, 4)},
        **{square: dict.fromkeys("xp", (3 + wide, 3 + wide)) for square in ("matmul", "itself")},
        "convolved": dict.fromkeys("xp", (2, 3, 5 + wide, 5 + wide)),
    }
    shapes = known.get(name, {"x": (2 + wide, 4), "p": (3 + wide, 4)})
    arrays: dict[str, Array] = {
        key: f32(*shape, seed=seed) for seed, (key, shape) in enumerate(shapes.items())
    }
    ways: dict[str, list[dict[str, Any]]] = {
        "size": [{}, {"p": f32(1, 4, seed=2)}],
        "loop": [{"c": turns} for turns in (2, 0, 1)],
        "nested": [{"c": c, "d": d} for c, d in ((False, True), (True, True), (True, False))],
    }
    decided = ways.get(name, [{"c": False}, {"c": True}])
    return [{**arrays, **{key: np.asarray(one) for key, one in row.items()}} for row in decided]


#: A layer of a decoder: ``#`` is its number, and ``@`` the body that it is of.
LAYER = """
    @qm# = MatMul(@x#, q#) @qr# = Reshape(@qm#, apart) @q# = Transpose<perm = [0, 2, 1, 3]>(@qr#)
    @km# = MatMul(@x#, k#) @kr# = Reshape(@km#, apart) @kn# = Transpose<perm = [0, 2, 1, 3]>(@kr#)
    @vm# = MatMul(@x#, v#) @vr# = Reshape(@vm#, apart) @vn# = Transpose<perm = [0, 2, 1, 3]>(@vr#)
    JOINED
    @kt# = Transpose<perm = [0, 1, 3, 2]>(@k#) @s# = MatMul(@q#, @kt#) @w# = Softmax<axis = -1>(@s#)
    @a# = MatMul(@w#, @v#) @at# = Transpose<perm = [0, 2, 1, 3]>(@a#) @ar# = Reshape(@at#, together)
    @o# = MatMul(@ar#, o#) @x+ = Add(@x#, @o#)
"""
JOINED = "@k# = Concat<axis = 2>(past_k#, @kn#) @v# = Concat<axis = 2>(past_v#, @vn#)"


def decoder(layers: int = 2) -> ModelProto:
    """Build a merged decoder as exporters write it: a body with the past, and one without.

    ``use_cache_branch`` chooses; each body has all layers, and delivers keys and values.
    """

    def body(at: str) -> str:
        layer = LAYER.replace("JOINED", JOINED)
        if at == "e":
            layer = LAYER.replace("JOINED", "").replace("@kn", "@k").replace("@vn", "@v")
        nodes = "".join(layer.replace("#", str(i)).replace("+", str(i + 1)) for i in range(layers))
        ends = ", ".join(f"float[] {name}" for name in ["@l", *present("@{}{}")])
        text = f"""{at}() => ({ends}) {{ @x0 = Gather(embedding, input_ids) {nodes}
            @u = Transpose<perm = [1, 0]>(embedding) @l = MatMul(@x{layers}, @u) }}"""
        return text.replace("@", at)

    def present(pattern: str) -> list[str]:
        return [pattern.format(part, i) for i in range(layers) for part in "kv"]

    cached = f"[batch, {HEADS}, past_sequence, {WIDTH}]"
    past = ", ".join(f"float{cached} {name}" for name in present("past_{}{}"))
    total = f"float[batch, {HEADS}, total, {WIDTH}]"
    delivered = ", ".join(f"{total} {name}" for name in present("present_{}{}"))
    rng, hidden = np.random.default_rng(0), HEADS * WIDTH
    weights = {
        f"{part}{i}": rng.standard_normal((hidden, hidden), np.float32) / np.float32(hidden**0.5)
        for i in range(layers)
        for part in "qkvo"
    }
    return model(
        f"""merged (int64[batch, sequence] input_ids, {past}, bool[1] use_cache_branch)
            => (float[batch, sequence, {VOCABULARY}] logits, {delivered})
        <int64[4] apart = {{0, 0, {HEADS}, {WIDTH}}}, int64[3] together = {{0, 0, {hidden}}}> {{
        logits, {", ".join(present("present_{}{}"))} = If(use_cache_branch)
            < then_branch = {body("t")}, else_branch = {body("e")} > }}""",
        embedding=rng.standard_normal((VOCABULARY, hidden), np.float32),
        **weights,
    )


def steps_of_a_decoder(layers: int, batch: int = 1, prompt: int = 3) -> list[dict[str, Array]]:
    """Return feeds of a prompt without past, and of two tokens after it."""
    rng, steps = np.random.default_rng(1), []
    for past, new in ((0, prompt), (prompt, 1), (prompt + 1, 1)):
        feeds: dict[str, Array] = {"input_ids": rng.integers(0, VOCABULARY, (batch, new))}
        for name in (f"past_{part}{i}" for i in range(layers) for part in "kv"):
            feeds[name] = rng.standard_normal((batch, HEADS, past, WIDTH), np.float32)
        steps.append({**feeds, "use_cache_branch": np.array([past > 0])})
    return steps


#: Which body comes first, and options of the session.
EACH: list[tuple[int, dict[str, Any]]] = list(
    product((1, -1), ({}, {"libraries": ["numpy"]}, {"deterministic": True}, {"optimize": "none"}))
)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("order", "options"), slow_but(EACH[:5], EACH))
def test_each_body_in_each_order(name: str, order: int, options: dict[str, Any]) -> None:
    weights: dict[str, Any] = {"f": f32(2, 3, 3, 3)} if name == "convolved" else {}
    proto = model(MODELS[name], **weights)
    with Session(proto, cache_dir=None, **options) as session:
        for wide in (0, 2, 0, 1):
            for feeds in feeds_of(name, wide)[::order]:
                same_as_runtime(session, proto, feeds, 1e-4)


@pytest.mark.parametrize("order", [1, -1], ids=["prompt first", "past first"])
@pytest.mark.parametrize("layers", [1, 3])
def test_a_merged_decoder(layers: int, order: int, tmp_path: Path) -> None:
    """With an empty cache, and out of the cache in the other order."""
    onnx.save(decoder(layers), tmp_path / "decoder.onnx")
    for direction in (order, -order):
        with Session(tmp_path / "decoder.onnx", cache_dir=tmp_path / "cache") as session:
            for batch, prompt in ((1, 3), (2, 5), (1, 3)):
                for feeds in steps_of_a_decoder(layers, batch, prompt)[::direction]:
                    same_as_runtime(session, decoder(layers), feeds, 1e-4)


def test_layouts_of_inputs_and_outputs_have_the_promised_dims() -> None:
    proto = model(MODELS["delivered"])
    with Session(proto) as plain:
        ports = {port.name: port.dims for port in (*plain.inputs, *plain.outputs)}
    turned = {name: " ".join(reversed(ports[name])) for name in "pyz"}
    outputs = {name: turned[name] for name in "yz"}
    with Session(proto, input_layouts={"p": turned["p"]}, output_layouts=outputs) as session:
        for feeds in feeds_of("delivered"):
            feeds["p"] = np.asfortranarray(feeds["p"])
            same_as_runtime(session, proto, feeds, 1e-4)
            assert "p" not in session.copied
            tensors = session.run_tensors(None, feeds)
            assert [tuple(tensor.dims) for tensor in tensors] == [ports["y"], ports["z"]]


def test_bound_inputs_of_a_body_that_joins() -> None:
    proto = model(MODELS["size"])
    for feeds in feeds_of("size"):
        with Session(proto) as session:
            binding = session.bind(feeds)
            for _ in range(2):
                feeds["x"][...] += 1
                binding.run()
                [expected] = runtime(proto, feeds)
                np.testing.assert_allclose(binding.outputs["y"], expected, rtol=1e-5)


def test_bound_inputs_of_a_merged_decoder() -> None:
    proto = decoder()
    [_, feeds, _] = steps_of_a_decoder(2)
    with Session(proto) as session:
        same_as_runtime(session, proto, feeds, 1e-4)
        with pytest.raises(InputError, match="use_cache_branch"):
            session.bind(feeds)
