"""Sparse tensors: initializers and constants, in both ways to write their indices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import GraphProto, ModelProto, SparseTensorProto, TensorProto, helper, numpy_helper

from vtensor import Session
from vtensor.errors import BudgetError, ModelError
from vtensor.frontends.tensors import sparse_array
from vtensor.language.dtype import from_numpy, numpy_dtype

Array = np.ndarray[Any, Any]

DENSE = np.array([[0, 5, 0], [0, 0, -2]], np.float32)


def sparse(dense: Array, name: str = "k", linear: bool = True) -> SparseTensorProto:
    """A dense array as a sparse tensor."""
    places = np.flatnonzero(dense.reshape(-1) != 0).astype(np.int64)
    values = numpy_helper.from_array(dense.reshape(-1)[places], name)
    if not linear:
        places = np.stack(np.unravel_index(places, dense.shape), axis=1).astype(np.int64)
    return SparseTensorProto(
        dims=dense.shape, values=values, indices=numpy_helper.from_array(places, "places")
    )


def added(where: str, tensor: SparseTensorProto, opset: int = 18) -> ModelProto:
    """x + k, where k is sparse."""
    kind = helper.make_tensor_value_info("x", tensor.values.data_type, tensor.dims)
    out = helper.make_tensor_value_info("y", tensor.values.data_type, tensor.dims)
    constant = helper.make_node("Constant", [], ["k"], sparse_value=tensor)
    add, own = helper.make_node("Add", ["x", "k"], ["y"]), [tensor]
    if where == "initializer":
        graph = helper.make_graph([add], "g", [kind], [out], sparse_initializer=own)
    elif where == "constant":
        graph = helper.make_graph([constant, add], "g", [kind], [out])
    else:
        nodes, initializers = ([constant, add], []) if where == "body constant" else ([add], own)
        given = (
            []
            if "loop" not in where
            else [
                helper.make_tensor_value_info("i", TensorProto.INT64, []),
                helper.make_tensor_value_info("c", TensorProto.BOOL, []),
                helper.make_tensor_value_info("s", tensor.values.data_type, tensor.dims),
            ]
        )
        if given:
            nodes = [
                helper.make_node("Identity", ["c"], ["d"]),
                helper.make_node("Add", ["s", "k"], ["y"]),
            ]
        body = helper.make_graph(nodes, "body", given, [out], sparse_initializer=initializers)
        if given:
            body.output.insert(0, helper.make_tensor_value_info("d", TensorProto.BOOL, []))
            once = helper.make_node("Constant", [], ["n"], value_int=1)
            outer = [once, helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)]
        else:
            chosen = helper.make_tensor("t", TensorProto.BOOL, [], [True])
            outer = [
                helper.make_node("Constant", [], ["t"], value=chosen),
                helper.make_node("If", ["t"], ["y"], then_branch=body, else_branch=body),
            ]
        graph = helper.make_graph(outer, "g", [kind], [out])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


PLACES = ("initializer", "constant", "body", "body constant", "loop")


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("where", PLACES)
def test_values_stand_where_their_indices_say(where: str, linear: bool) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with Session(added(where, sparse(DENSE, linear=linear)), cache_dir=None) as session:
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x + DENSE)


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize(
    "number",
    sorted(set(helper.get_all_tensor_dtypes()) - {TensorProto.STRING, TensorProto.FLOAT8E8M0}),
)
def test_every_element_type(number: int, linear: bool) -> None:
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(number))
    try:
        numpy_dtype(from_numpy(dtype))
    except Exception:  # VTensor has no such type
        with pytest.raises(ModelError, match="element type"):
            sparse_array(SparseTensorProto(dims=[1], values=TensorProto(data_type=number)), None, 9)
        return
    dense = np.array([[0, 1, 0, 0], [1, 0, 0, 1]]).astype(dtype)
    found = sparse_array(sparse(dense, linear=linear), None, 1 << 20)
    assert found.dtype == dtype
    assert found.tobytes() == dense.tobytes()


@pytest.mark.parametrize("shape", [(4,), (0,), (2, 0, 3), (1, 1, 1, 1), (2, 3, 4, 5), ()])
@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_any_rank_and_any_number_of_values(
    shape: tuple[int, ...], linear: bool, share: float
) -> None:
    rng = np.random.default_rng(0)
    dense = np.array(np.where(rng.random(shape) < share, rng.random(shape) + 1, 0), np.float32)
    tensor = sparse(dense, linear=linear or not shape)
    np.testing.assert_array_equal(sparse_array(tensor, None, 1 << 20), dense)


@pytest.mark.parametrize("where", ["initializer", "constant", "body", "body constant"])
def test_values_may_be_in_a_file(where: str, tmp_path: Path) -> None:
    tensor = sparse(DENSE)
    data = tensor.values.raw_data
    (tmp_path / "data.bin").write_bytes(b"head" + data)
    tensor.values.ClearField("raw_data")
    tensor.values.data_location = TensorProto.EXTERNAL
    told = {"location": "data.bin", "offset": "4", "length": str(len(data))}
    for key, value in told.items():
        tensor.values.external_data.add(key=key, value=value)
    made = added(where, tensor)
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    x = np.ones((2, 3), np.float32)
    for _ in range(2):
        with Session(tmp_path / "m.onnx", cache_dir=tmp_path / "cache") as session:
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], x + DENSE)
    with pytest.raises(ModelError, match=r"data\.bin"):
        Session(made, cache_dir=None)
    (tmp_path / "data.bin").write_bytes(b"head" + np.array([7, 8], np.float32).tobytes())
    with Session(tmp_path / "m.onnx", cache_dir=tmp_path / "cache") as session:
        wanted = x + np.array([[0, 7, 0], [0, 0, 8]], np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], wanted)


def with_indices(indices: Any, dtype: Any = np.int64) -> SparseTensorProto:
    tensor = sparse(DENSE)
    tensor.indices.CopyFrom(numpy_helper.from_array(np.array(indices, dtype)))
    return tensor


def with_values(values: Any) -> SparseTensorProto:
    tensor = sparse(DENSE)
    tensor.values.CopyFrom(numpy_helper.from_array(np.array(values, np.float32), "k"))
    return tensor


def with_dims(*dims: int) -> SparseTensorProto:
    tensor = sparse(DENSE)
    tensor.dims[:] = dims
    return tensor


WRONG = {
    "beyond": with_indices([1, 6]),
    "far beyond": with_indices([1, 1 << 62]),
    "negative": with_indices([-1, 5]),
    "twice": with_indices([1, 1]),
    "descending": with_indices([5, 1]),
    "beyond a row": with_indices([[0, 1], [1, 3]]),
    "beyond the rows": with_indices([[0, 1], [2, 0]]),
    "negative in a row": with_indices([[0, -1], [1, 2]]),
    "rows descend": with_indices([[1, 2], [0, 1]]),
    "rows twice": with_indices([[0, 1], [0, 1]]),
    "too few": with_indices([1]),
    "too many": with_indices([1, 2, 5]),
    "other rank": with_indices([[0, 0, 1], [0, 1, 2]]),
    "three axes": with_indices([[[1]], [[5]]]),
    "narrow indices": with_indices([1, 5], np.int32),
    "float indices": with_indices([1, 5], np.float32),
    "values with axes": with_values([[1.0, 2.0]]),
    "one value": with_values(1.0),
    "negative size": with_dims(-2, -3),
    "no size": with_dims(0, 3),
    "many dims": with_dims(*[1] * 65),
}


@pytest.mark.parametrize("where", ["initializer", "constant", "body"])
@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_a_model_error(what: str, where: str) -> None:
    tensor = WRONG[what]
    with pytest.raises(ModelError):
        sparse_array(tensor, None, 1 << 20)
    made = added(where, sparse(DENSE))
    _put(made.graph, tensor)
    with pytest.raises(ModelError):
        Session(made, cache_dir=None)


def _put(graph: GraphProto, tensor: SparseTensorProto) -> None:
    """Have another tensor in the place of each sparse one."""
    for own in graph.sparse_initializer:
        own.CopyFrom(tensor)
        own.values.name = "k"
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("sparse_tensor"):
                attribute.sparse_tensor.CopyFrom(tensor)
            _put(attribute.g, tensor)


@pytest.mark.parametrize("where", ["initializer", "constant", "body"])
@pytest.mark.parametrize(
    "dims", [(1 << 40,), (1 << 31, 1 << 31), (1 << 62, 1 << 62, 4), (0, 1 << 62, 1 << 62)]
)
def test_a_dense_size_beyond_the_budget(where: str, dims: tuple[int, ...]) -> None:
    made = added(where, sparse(DENSE))
    _put(made.graph, with_dims(*dims))
    with pytest.raises(BudgetError, match="budget"):
        Session(made, cache_dir=None)


def test_several_that_are_too_much_together() -> None:
    made = added("initializer", sparse(np.ones((300,), np.float32)))
    made.graph.sparse_initializer.append(sparse(np.ones((300,), np.float32), "other"))
    Session(made, cache_dir=None, max_bytes=1 << 16).close()
    with pytest.raises(BudgetError):
        Session(made, cache_dir=None, max_bytes=2000)


def test_names_that_are_taken_or_absent() -> None:
    made = added("initializer", sparse(DENSE))
    made.graph.sparse_initializer.append(sparse(DENSE))
    with pytest.raises(ModelError, match="two initializers"):
        Session(made, cache_dir=None)
    made = added("initializer", sparse(DENSE, name=""))
    with pytest.raises(ModelError):
        Session(made, cache_dir=None)


def test_a_sparse_default_may_be_overridden() -> None:
    made = added("initializer", sparse(DENSE))
    made.graph.input.append(helper.make_tensor_value_info("k", TensorProto.FLOAT, [2, 3]))
    x = np.ones((2, 3), np.float32)
    with Session(made, cache_dir=None) as session:
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x + DENSE)
        np.testing.assert_array_equal(session.run(None, {"x": x, "k": x})[0], x + x)


def test_a_model_with_sparse_tensors_is_exported_dense(tmp_path: Path) -> None:
    from vtensor import save_onnx
    from vtensor.frontends.onnx import load_onnx

    save_onnx(load_onnx(added("initializer", sparse(DENSE))), tmp_path / "dense.onnx")
    assert not onnx.load(tmp_path / "dense.onnx").graph.sparse_initializer
    x = np.ones((2, 3), np.float32)
    with Session(tmp_path / "dense.onnx", cache_dir=None) as session:
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x + DENSE)


def test_a_branch_in_a_function_has_one() -> None:
    kind = helper.make_tensor_value_info
    then = helper.make_graph(
        [helper.make_node("Add", ["a", "k"], ["sum"])], "then", [], [kind("sum", 1, [2, 3])]
    )
    then.sparse_initializer.append(sparse(DENSE))
    other = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["minus"])], "other", [], [kind("minus", 1, [2, 3])]
    )
    chosen = helper.make_node("If", ["c"], ["b"], then_branch=then, else_branch=other)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    graph = helper.make_graph(
        [helper.make_node("F", ["x", "c"], ["y"], domain="own")],
        "g",
        [kind("x", 1, [2, 3]), kind("c", TensorProto.BOOL, [])],
        [kind("y", 1, [2, 3])],
    )
    function = helper.make_function("own", "F", ["a", "c"], ["b"], [chosen], opsets[:1])
    made = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10)
    x = np.ones((2, 3), np.float32)
    with Session(made, cache_dir=None) as session:
        for c, wanted in ((True, x + DENSE), (False, -x)):
            np.testing.assert_array_equal(session.run(None, {"x": x, "c": np.array(c)})[0], wanted)
