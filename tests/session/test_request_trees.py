"""Runs of models in segments that no Python leads from one segment to the next."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from tests.frontends.support import Array, f32, model, same_as_runtime
from tests.libraries.frames import entered
from vtensor import Session
from vtensor.errors import InputError, SessionClosedError
from vtensor.runtime.execution import request_tree

BRANCH = """If(c) < then_branch = t () => (float[n, 4] p) { p = Exp(x) },
    else_branch = e () => (float[n, 4] q) { q = Neg(x) } >"""
NONE = "<float none = {0}, float[4] two = {2, 2, 2, 2}>"

#: Models by name; the sum of x decides what runs.
MODELS = {
    "branch": f"""g (float[n, 4] x) => (float[n, 4] y) {NONE} {{
        s = ReduceSum<keepdims = 0>(x) c = Greater(s, none) b = {BRANCH} y = Mul(b, two) }}""",
    "branch that passes": f"""g (float[n, 4] x) => (float[n, 4] y, float[n, 4] z) {NONE} {{
        s = ReduceSum<keepdims = 0>(x) c = Greater(s, none) h = Mul(x, two)
        y = If(c) < then_branch = t () => (float[n, 4] p) {{ p = Identity(x) }},
            else_branch = e () => (float[n, 4] q) {{ q = Identity(h) }} >
        z = Sub(y, two) }}""",
    "found": f"""g (float[n, 4] x) => (float[k] y) {NONE} {{
        f = Floor(x) i = NonZero(f) t = Transpose(i) y = GatherND(x, t) }}""",
    "branch, then found, twice": f"""g (float[n, 4] x) => (float[j] y, int64[2, k] i) {NONE} {{
        s = ReduceSum<keepdims = 0>(x) c = Greater(s, none) b = {BRANCH} f = Floor(b)
        i = NonZero(f) t = Transpose(i) a = GatherND(b, t) d = Floor(a) h = NonZero(d)
        u = Transpose(h) y = GatherND(a, u) }}""",
    "two branches": f"""g (float[n, 4] x) => (float[n, 4] y) {NONE} {{
        s = ReduceSum<keepdims = 0>(x) c = Greater(s, none) d = Less(s, none)
        b = If(c) < then_branch = t () => (float[n, 4] p) {{ p = Identity(x) }},
            else_branch = e () => (float[n, 4] q) {{ q = Neg(x) }} >
        y = If(d) < then_branch = u () => (float[n, 4] v) {{ v = Abs(b) }},
            else_branch = f () => (float[n, 4] w) {{ w = Exp(b) }} > }}""",
}


def feed(rows: int, sign: int) -> dict[str, Array]:
    """Return the input of a model, given the rows of x and the sign of its sum."""
    return {"x": sign * np.abs(f32(rows, 4, seed=rows))}


FEEDS = [(rows, sign) for rows in (1, 3) for sign in (1, -1)]


@pytest.mark.parametrize("name", MODELS)
def test_known_paths_run_without_python_between_segments(name: str) -> None:
    proto = model(MODELS[name])
    with Session(proto, deterministic=True, cache_dir=None) as session:
        for _ in range(5):
            for rows, sign in FEEDS:
                same_as_runtime(session, proto, feed(rows, sign))
        for rows, sign in FEEDS:
            assert session._runner._segments is not None
            inputs = feed(rows, sign)
            names = entered(partial(session.run, None, inputs))
            assert not [name for name in names if name.startswith(("Segments.", "_Branch."))]
            assert len(names) <= 25
            plan = session.plan
            session.run(None, feed(rows, -sign))
            session.run(None, feed(rows, sign))
            assert session.plan is plan
        for rows, sign in [(2, 1), (3, -1), (2, -1)]:  # some are new
            same_as_runtime(session, proto, feed(rows, sign))


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int]]:
    """For each native run, whether it came to the end of a path, and after how many requests."""
    rows, run = list[tuple[bool, int]](), request_tree.RequestTree.run

    def noted(
        self: request_tree.RequestTree, arrays: object
    ) -> tuple[list[Array] | None, request_tree.Done | None]:
        outputs, done = run(self, arrays)
        rows.append((outputs is not None, len(done or ())))
        return outputs, done

    monkeypatch.setattr(request_tree.RequestTree, "run", noted)
    return rows


def test_new_values_leave_a_path_where_they_decide(ran: list[tuple[bool, int]]) -> None:
    proto = model(MODELS["branch, then found, twice"])
    with Session(proto, deterministic=True, cache_dir=None) as session:
        x = np.abs(f32(5, 4)) + 1
        for _ in range(5):
            same_as_runtime(session, proto, {"x": x})
        ended, whole = ran[-1]
        assert ended
        assert whole >= 4
        x[0, 0] = -0.5  # another number of elements is found in the branch's output
        same_as_runtime(session, proto, {"x": x})
        ended, part = ran[-1]
        assert not ended
        assert 0 < part < whole


def test_trees_settle_for_changing_branches_and_names(
    ran: list[tuple[bool, int]],
) -> None:
    proto = model(MODELS["two branches"])
    with Session(proto, deterministic=True, cache_dir=None) as session:
        names = ["y"]
        for _ in range(8):
            for sign in (1, -1):
                for wanted in (None, names):
                    ran.clear()
                    session.run(wanted, feed(3, sign))
        assert ran[0][0]
        names[0] = "b"  # the session keeps no list of the caller's
        b, [y] = feed(3, 1)["x"], session.run(["y"], feed(3, 1))
        np.testing.assert_array_equal(session.run(names, feed(3, 1))[0], b)
        np.testing.assert_array_equal(session.run(np.array(["y"]), feed(3, 1))[0], y)  # type: ignore[arg-type]


def test_arrays_in_other_orders_and_of_other_types() -> None:
    text = f"""g (float[n, 4] x, float[n, 4] z) => (float[n, 4] y) {NONE} {{
        s = ReduceSum<keepdims = 0>(x) c = Greater(s, none)
        y = If(c) < then_branch = t () => (float[n, 4] p) {{ p = Exp(z) }},
            else_branch = e () => (float[n, 4] q) {{ q = Identity(z) }} > }}"""
    x, z = np.abs(f32(3, 4)), f32(3, 4, seed=1)
    with Session(model(text), deterministic=True, cache_dir=None) as session:
        likes = [z, np.asfortranarray(z), z.view(np.recarray), z.astype(">f4"), z[::1]]
        for other in [*likes, *[z] * 5, *likes * 2]:
            for sign, expected in ((1, np.exp(z)), (-1, z)):
                [y] = session.run(None, {"x": sign * x, "z": other})
                assert type(y) is np.ndarray
                assert y.dtype == np.dtype("f4")
                np.testing.assert_allclose(y, expected, 1e-6)


def test_outputs_share_no_memory() -> None:
    proto = model(MODELS["branch that passes"])
    with Session(proto, deterministic=True, cache_dir=None) as session:
        for _ in range(6):
            inputs = feed(3, 1)
            before = inputs["x"].copy()
            passed, other = session.run(None, inputs)
            assert not np.may_share_memory(passed, inputs["x"])
            passed[...] = other[...] = 7
            np.testing.assert_array_equal(inputs["x"], before)


def test_one_array_for_two_inputs_says_nothing_of_others() -> None:
    text = f"""g (float[n, 4] x, float[n, 4] z) => (float[n, 4] y) {NONE} {{
        s = ReduceSum<keepdims = 0>(x) c = Greater(s, none) b = {BRANCH} y = Sub(b, z) }}"""
    proto = model(text)
    with Session(proto, deterministic=True, cache_dir=None) as session:
        x, z = np.abs(f32(3, 4)), f32(3, 4, seed=1)
        for other in [x] * 5 + [z] * 5 + [x]:
            same_as_runtime(session, proto, {"x": x, "z": other})


def test_wrong_inputs_and_other_outputs() -> None:
    proto = model(MODELS["branch"])
    with Session(proto, deterministic=True, cache_dir=None) as session:
        inputs = feed(3, 1)
        for _ in range(6):
            [expected] = session.run(["y"], inputs)
        wrong: list[dict[str, object]] = [
            {},
            {"x": inputs["x"][:, :3]},
            {"x": inputs["x"].astype(np.float64)},
            {"x": inputs["x"], "z": 1},
            {"z": inputs["x"]},
        ]
        for other in wrong:
            with pytest.raises(InputError):
                session.run(["y"], other)
        strange = [inputs["x"].tolist(), np.asfortranarray(inputs["x"]), inputs["x"][::1]]
        for x in strange:
            np.testing.assert_array_equal(session.run(["y"], {"x": x})[0], expected)
        b, y = session.run(["b", "y"], inputs)
        np.testing.assert_array_equal(b * 2, y)
        out = np.zeros_like(expected)
        assert session.run(None, inputs, out={"y": out})[0] is out
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(session.run(["y"], inputs)[0], expected)
    with pytest.raises(SessionClosedError):
        session.run(["y"], inputs)


def test_an_error_in_a_known_path_names_its_node() -> None:
    text = f"""g (float[n, 4] x, int64[1] at) => (float[1, 4] y) {NONE} {{
        s = ReduceSum<keepdims = 0>(x) c = Greater(s, none) b = {BRANCH} y = Gather(b, at) }}"""
    with Session(model(text), deterministic=True, cache_dir=None) as session:
        for at in [1] * 6 + [9, 2]:
            inputs = {**feed(3, 1), "at": np.array([at])}
            if at == 9:
                with pytest.raises(InputError, match="Gather"):
                    session.run(None, inputs)
            else:
                np.testing.assert_allclose(
                    session.run(None, inputs)[0], np.exp(inputs["x"][at : at + 1]), 1e-6
                )


def test_a_tree_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_tree, "MOST_REQUESTS", 6)
    proto = model(MODELS["branch"])
    with Session(proto, deterministic=True, cache_dir=None) as session:
        longest = 0
        for rows in [1, 2, 3, 4] * 5:
            same_as_runtime(session, proto, feed(rows, 1))
            held = session._runner._trees._trees.get(None)
            longest = max(longest, 0 if held is None else len(held.native))
        assert 3 <= longest <= 6


def test_threads_and_streams_share_trees() -> None:
    proto = model(MODELS["branch, then found, twice"])
    for streams in (1, 2):
        with Session(
            proto, threads=2, streams=streams, deterministic=True, cache_dir=None
        ) as session:
            feeds = [feed(rows, sign) for rows, sign in FEEDS]
            expected = [session.run(None, inputs) for inputs in feeds]
            with ThreadPoolExecutor(4) as pool:
                answers = [pool.submit(session.run, None, feeds[i % 4]) for i in range(200)]
                for i, answer in enumerate(answers):
                    for array, other in zip(answer.result(), expected[i % 4], strict=True):
                        np.testing.assert_array_equal(array, other)
