"""Integers that no f64 has, as parameters of operators: run, folded, written and read again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

from vtensor import Graph, Session, load_onnx, save_onnx
from vtensor.errors import UnsupportedOperatorError
from vtensor.language.dtype import numpy_dtype

Array = np.ndarray[Any, Any]

LARGE = {
    "s64": (2**53 + 1, 2**63 - 1, -(2**63), -(2**53) - 1, 2**62 + 1),
    "u64": (2**53 + 1, 2**63 - 1, 2**64 - 1, 2**63 + 1, 2**62 + 1),
    "s32": (2**24 + 1, 2**31 - 1, -(2**31), -(2**24) - 1, 2**30 + 1),
    "u32": (2**24 + 1, 2**31 - 1, 2**32 - 1, 2**31 + 1, 2**30 + 1),
}
LIBRARIES = (None, ["eigen"], ["numpy"])


class Case(NamedTuple):
    """A node, its inputs of which some are parameters, and its output."""

    op_type: str
    inputs: Sequence[Array | None]
    parameters: frozenset[int]
    expected: Array
    attributes: dict[str, Any]

    def model(self, folded: bool) -> ModelProto:
        """A model of the node; folded, all its inputs are initializers."""
        given = [(f"x{place}", x) for place, x in enumerate(self.inputs) if x is not None]
        held = {f"x{place}" for place in self.parameters}
        names = [f"x{place}" * (x is not None) for place, x in enumerate(self.inputs)]
        infos = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(x.dtype), list(x.shape)
            )
            for name, x in given
            if not folded and name not in held
        ]
        kind = helper.np_dtype_to_tensor_dtype(self.expected.dtype)
        graph = helper.make_graph(
            [helper.make_node(self.op_type, names, ["y"], **self.attributes)],
            "large",
            infos,
            [helper.make_tensor_value_info("y", kind, None)],
            [numpy_helper.from_array(x, name) for name, x in given if folded or name in held],
        )
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    @property
    def feeds(self) -> dict[str, Array]:
        """The inputs that are no parameters."""
        rows = enumerate(self.inputs)
        return {f"x{i}": x for i, x in rows if x is not None and i not in self.parameters}


def cases(dtype: str) -> Iterator[Case]:
    """Operators whose parameters are integers of a type."""
    kind = np.dtype(numpy_dtype(dtype))
    x = np.array([*LARGE[dtype], 0, 1], kind)
    for number in LARGE[dtype][:3]:
        bound = np.array(number, kind)
        yield Case("Clip", (x, None, bound), frozenset({2}), np.minimum(x, bound), {})
        yield Case("Clip", (x, bound), frozenset({1}), np.maximum(x, bound), {})
        wanted = np.minimum(np.maximum(x, bound), bound)
        yield Case("Clip", (x, bound, bound), frozenset({1, 2}), wanted, {})
        pads = np.array([1, 2])
        wanted = np.pad(x, (1, 2), constant_values=bound)
        yield Case("Pad", (x, pads, bound), frozenset({1, 2}), wanted, {})
        element = numpy_helper.from_array(bound.reshape(1))
        wanted = np.full(3, bound)
        yield Case("ConstantOfShape", (np.array([3]),), frozenset({0}), wanted, {"value": element})
        pair, depth = np.array([1, number], kind), np.array(3)
        wanted = np.where(np.eye(3, dtype=bool)[[0, 2]], bound, kind.type(1))
        yield Case("OneHot", (np.array([0, 2]), depth, pair), frozenset({1, 2}), wanted, {})
    yield Case("Shrink", (x,), frozenset(), x, {"lambd": 0.5, "bias": 0.0})
    square = np.resize(x, (2, 2))
    with np.errstate(all="ignore"):
        yield Case("Gemm", (square, square), frozenset(), square @ square * 2, {"alpha": 2.0})
    image, sizes = x.reshape(1, 1, 1, -1), np.array([1, 1, 1, 2 * x.size - 1])
    roi = np.array([0, 0, 0, 0, 1, 1, 1, 2], np.float32)
    wanted = np.concatenate([x, np.full(x.size - 1, 7, kind)]).reshape(1, 1, 1, -1)
    cropped = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    if dtype in ("s64", "s32"):
        last = int(x.max())
        bounds = [np.array(n, kind) for n in (last - 3, last, 1)]
        wanted_range = np.array([last - 3, last - 2, last - 1], kind)
        yield Case("Range", bounds, frozenset({0, 1, 2}), wanted_range, {})
        yield Case("Resize", (image, roi, None, sizes), frozenset({1, 3}), wanted, cropped)
    yield Case("ReduceMean", (x[:1],), frozenset(), x[:1], {})


@pytest.mark.parametrize("dtype", LARGE)
@pytest.mark.parametrize("folded", [False, True])
def test_large_integers_are_exact(dtype: str, folded: bool, tmp_path: Path) -> None:
    for place, case in enumerate(cases(dtype)):
        proto, feeds = case.model(folded), {} if folded else case.feeds
        graph = load_onnx(proto)
        models: list[Any] = [proto, Graph.parse(str(graph), graph.constants).seal()]
        with suppress(UnsupportedOperatorError):  # ONNX has no words for some
            path = tmp_path / f"{place}.onnx"
            save_onnx(graph, path)
            models.append(path)
        for model in models:
            for libraries in LIBRARIES if model is proto else LIBRARIES[:1]:
                with Session(model, threads=1, libraries=libraries, cache_dir=None) as session:
                    [found] = session.run(None, feeds)
                assert found.dtype == case.expected.dtype, case
                np.testing.assert_array_equal(found, case.expected, str((case, libraries)))


def test_bounds_that_are_fed() -> None:
    """Their values decide what is planned."""
    x = np.array([2**53 + 1, 2**53 + 7, 5])
    bound = np.array(2**53 + 1)
    case = Case("Clip", (x, bound, bound), frozenset(), np.full(3, bound), {})
    with Session(case.model(False), threads=1, cache_dir=None) as session:
        assert session.run(None, case.feeds)[0].tolist() == [2**53 + 1] * 3
        again = {**case.feeds, "x1": bound - 2, "x2": bound + 1}
        assert session.run(None, again)[0].tolist() == [2**53 + 1, 2**53 + 2, 2**53 - 1]


def test_bounds_are_kept_in_a_cache(tmp_path: Path) -> None:
    x, bound = np.array([2**53 + 1, 2**53 + 7]), np.array(2**53 + 1)
    case = Case("Clip", (x, bound, bound), frozenset({1, 2}), np.full(2, bound), {})
    path = tmp_path / "clip.onnx"
    path.write_bytes(case.model(False).SerializeToString())
    for _ in range(3):
        with Session(path, threads=1, cache_dir=tmp_path / "cache") as session:
            assert session.run(None, case.feeds)[0].tolist() == [2**53 + 1] * 2
