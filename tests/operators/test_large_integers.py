"""Integers that no f64 has, as parameters of operators: run, folded, written and read again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from tests.libraries.slow import ALL
from tests.operators.tables.nodes import Array, Node, fed, make
from vtensor import Graph, Session, load_onnx, save_onnx
from vtensor.errors import UnsupportedOperatorError
from vtensor.language.dtype import numpy_dtype

LARGE = {
    "s64": (2**53 + 1, 2**63 - 1, -(2**63), -(2**53) - 1, 2**62 + 1),
    "u64": (2**53 + 1, 2**63 - 1, 2**64 - 1, 2**63 + 1, 2**62 + 1),
    "s32": (2**24 + 1, 2**31 - 1, -(2**31), -(2**24) - 1, 2**30 + 1),
    "u32": (2**24 + 1, 2**31 - 1, 2**32 - 1, 2**31 + 1, 2**30 + 1),
}
LIBRARIES = (None, ["eigen"], ["numpy"])


def case(
    op_type: str, inputs: Sequence[Array | None], known: str, expected: Array, **attributes: Any
) -> tuple[Node, Array]:
    """Return a node and its output; the digits of ``known`` are the places of its parameters."""
    return make(op_type, 17, inputs, [*map(int, known)], **attributes), expected


def cases(dtype: str) -> Iterator[tuple[Node, Array]]:
    """Yield operators whose parameters are integers of a type."""
    kind = np.dtype(numpy_dtype(dtype))
    x = np.array([*LARGE[dtype], 0, 1], kind)
    for number in LARGE[dtype][: 3 if ALL else 1]:
        bound = np.array(number, kind)
        yield case("Clip", (x, None, bound), "2", np.minimum(x, bound))
        yield case("Clip", (x, bound), "1", np.maximum(x, bound))
        yield case("Clip", (x, bound, bound), "12", np.minimum(np.maximum(x, bound), bound))
        padded = np.pad(x, (1, 2), constant_values=bound)
        yield case("Pad", (x, np.array([1, 2]), bound), "12", padded)
        element = numpy_helper.from_array(bound.reshape(1))
        yield case("ConstantOfShape", (np.array([3]),), "0", np.full(3, bound), value=element)
        pair, depth = np.array([1, number], kind), np.array(3)
        hot = np.where(np.eye(3, dtype=bool)[[0, 2]], bound, kind.type(1))
        yield case("OneHot", (np.array([0, 2]), depth, pair), "12", hot)
    yield case("Shrink", (x,), "", x, lambd=0.5, bias=0.0)
    square = np.resize(x, (2, 2))
    with np.errstate(all="ignore"):
        yield case("Gemm", (square, square), "", square @ square * 2, alpha=2.0)
    if dtype in ("s64", "s32"):
        last = int(x.max())
        bounds = [np.array(n, kind) for n in (last - 3, last, 1)]
        yield case("Range", bounds, "012", np.array([last - 3, last - 2, last - 1], kind))
        image, sizes = x.reshape(1, 1, 1, -1), np.array([1, 1, 1, 2 * x.size - 1])
        roi = np.array([0, 0, 0, 0, 1, 1, 1, 2], np.float32)
        wanted = np.concatenate([x, np.full(x.size - 1, 7, kind)]).reshape(1, 1, 1, -1)
        mode = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
        yield case("Resize", (image, roi, None, sizes), "13", wanted, **mode)
    yield case("ReduceMean", (x[:1],), "", x[:1])


@pytest.mark.parametrize("dtype", LARGE)
@pytest.mark.parametrize("folded", [False, True])
def test_large_integers_are_exact(dtype: str, folded: bool, tmp_path: Path) -> None:
    for place, (plain, expected) in enumerate(cases(dtype)):
        node = plain.folded() if folded else plain
        graph = load_onnx(proto := node.model())
        models: list[Any] = [proto, Graph.parse(str(graph), graph.constants).seal()]
        with suppress(UnsupportedOperatorError):  # ONNX has no words for some
            path = tmp_path / f"{place}.onnx"
            save_onnx(graph, path)
            models.append(path)
        for model in models:
            for libraries in LIBRARIES if model is proto else LIBRARIES[:1]:
                with Session(model, threads=1, libraries=libraries, cache_dir=None) as session:
                    [result] = session.run(None, dict(node.feeds))
                assert result.dtype == expected.dtype, node
                np.testing.assert_array_equal(result, expected, f"{node} {libraries}")


def test_bounds_that_are_fed_decide_what_is_planned() -> None:
    bound = np.array(2**53 + 1)
    clip = fed("Clip", 17, np.array([2**53 + 1, 2**53 + 7, 5]), bound, bound)
    with Session(clip.model(), threads=1, cache_dir=None) as session:
        assert session.run(None, dict(clip.feeds))[0].tolist() == [2**53 + 1] * 3
        again = {**clip.feeds, "x1": bound - 2, "x2": bound + 1}
        assert session.run(None, again)[0].tolist() == [2**53 + 1, 2**53 + 2, 2**53 - 1]


def test_bounds_are_exact_in_a_cache(tmp_path: Path) -> None:
    bound = np.array(2**53 + 1)
    clip = fed("Clip", 17, np.array([2**53 + 1, 2**53 + 7]), bound, bound, constants=2)
    path = tmp_path / "clip.onnx"
    path.write_bytes(clip.model().SerializeToString())
    for _ in range(3):
        with Session(path, threads=1, cache_dir=tmp_path / "cache") as session:
            assert session.run(None, dict(clip.feeds))[0].tolist() == [2**53 + 1] * 2
