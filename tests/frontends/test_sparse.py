"""Sparse tensors: initializers and constants, in both ways to write their indices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, SparseTensorProto, TensorProto, helper, numpy_helper

from tests.frontends.support import Array, model, run_once
from vtensor import Session, load_onnx, save_onnx
from vtensor.errors import BudgetError, ModelError
from vtensor.frontends.tensors import sparse_array
from vtensor.language.dtype import from_numpy, numpy_dtype

DENSE = np.array([[0, 5, 0], [0, 0, -2]], np.float32)
ONES = {"x": np.ones((2, 3), np.float32)}


def sparse(dense: Array, name: str = "k", linear: bool = True) -> SparseTensorProto:
    """Return a dense array as a sparse tensor."""
    places = np.flatnonzero(dense.reshape(-1) != 0).astype(np.int64)
    values = numpy_helper.from_array(dense.reshape(-1)[places], name)
    if not linear:
        places = np.stack(np.unravel_index(places, dense.shape), axis=1).astype(np.int64)
    indices = numpy_helper.from_array(places, "places")
    return SparseTensorProto(dims=dense.shape, values=values, indices=indices)


#: Where a model has its sparse tensor: its nodes, which of them read it in a body.
NODES = {
    "initializer": "y = Add(x, k)",
    "constant": "y = Add(x, k)",
    "body": """t = Constant<value = bool {1}>()
        y = If(t) < then_branch = a() => (float[SIZES] p) { p = Add(x, k) },
                    else_branch = b() => (float[SIZES] q) { q = Add(x, k) } >""",
    "loop": """n = Constant<value_int = 1>()
        y = Loop(n, , x) < body = b(int64 i, bool c, float[SIZES] s)
            => (bool d, float[SIZES] p) { d = Identity(c) p = Add(s, k) } >""",
}
NODES["body constant"] = NODES["body"]


def added(where: str, tensor: SparseTensorProto) -> ModelProto:
    """Build x + k, where k is sparse."""
    text = f"g (float[SIZES] x) => (float[SIZES] y) {{ {NODES[where]} }}"
    proto = model(text.replace("SIZES", ", ".join(map(str, tensor.dims))), 18)
    bodies = [a.g for node in proto.graph.node for a in node.attribute if a.HasField("g")]
    for graph in bodies or [proto.graph]:
        if "constant" in where:
            node = helper.make_node("Constant", [], ["k"], sparse_value=tensor)
            graph.node.insert(0, node)
        else:
            graph.sparse_initializer.append(tensor)
    return proto


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("where", NODES)
def test_values_stand_where_their_indices_say(where: str, linear: bool) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    [y] = run_once(added(where, sparse(DENSE, linear=linear)), {"x": x}, cache_dir=None)
    np.testing.assert_array_equal(y, x + DENSE)


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
    array = sparse_array(sparse(dense, linear=linear), None, 1 << 20)
    assert (array.dtype, array.tobytes()) == (dtype, dense.tobytes())


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
    tensor, data = sparse(DENSE), tmp_path / "data.bin"
    data.write_bytes(b"head" + tensor.values.raw_data)
    length = str(len(tensor.values.raw_data))
    tensor.values.ClearField("raw_data")
    tensor.values.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "data.bin", "offset": "4", "length": length}.items():
        tensor.values.external_data.add(key=key, value=value)
    proto, path = added(where, tensor), tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())

    def is_sum(k: Any) -> None:
        [y] = run_once(path, ONES, cache_dir=tmp_path / "cache")
        np.testing.assert_array_equal(y, ONES["x"] + k)

    for _ in range(2):
        is_sum(DENSE)
    with pytest.raises(ModelError, match=r"data\.bin"):
        Session(proto, cache_dir=None)
    data.write_bytes(b"head" + np.array([7, 8], np.float32).tobytes())
    is_sum(np.array([[0, 7, 0], [0, 0, 8]], np.float32))


def changed(
    indices: Any = None, values: Any = None, dims: Any = None, kind: Any = np.int64
) -> SparseTensorProto:
    """Return a sparse tensor with other parts."""
    tensor = sparse(DENSE)
    if indices is not None:
        tensor.indices.CopyFrom(numpy_helper.from_array(np.array(indices, kind)))
    if values is not None:
        tensor.values.CopyFrom(numpy_helper.from_array(np.array(values, np.float32), "k"))
    if dims is not None:
        tensor.dims[:] = dims
    return tensor


WRONG = {
    "beyond": changed([1, 6]),
    "far beyond": changed([1, 1 << 62]),
    "negative": changed([-1, 5]),
    "twice": changed([1, 1]),
    "descending": changed([5, 1]),
    "beyond a row": changed([[0, 1], [1, 3]]),
    "beyond the rows": changed([[0, 1], [2, 0]]),
    "negative in a row": changed([[0, -1], [1, 2]]),
    "rows descend": changed([[1, 2], [0, 1]]),
    "rows twice": changed([[0, 1], [0, 1]]),
    "too few": changed([1]),
    "too many": changed([1, 2, 5]),
    "other rank": changed([[0, 0, 1], [0, 1, 2]]),
    "three axes": changed([[[1]], [[5]]]),
    "narrow indices": changed([1, 5], kind=np.int32),
    "float indices": changed([1, 5], kind=np.float32),
    "values with axes": changed(values=[[1.0, 2.0]]),
    "one value": changed(values=1.0),
    "negative size": changed(dims=(-2, -3)),
    "no size": changed(dims=(0, 3)),
    "many dims": changed(dims=[1] * 65),
}


@pytest.mark.parametrize("where", ["initializer", "constant", "body"])
@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_a_model_error(what: str, where: str) -> None:
    tensor = WRONG[what]
    with pytest.raises(ModelError):
        sparse_array(tensor, None, 1 << 20)
    proto = added(where, sparse(DENSE))
    _put(proto.graph, tensor)
    with pytest.raises(ModelError):
        Session(proto, cache_dir=None)


def _put(graph: GraphProto, tensor: SparseTensorProto) -> None:
    """Put another tensor in the place of each sparse one."""
    for initializer in graph.sparse_initializer:
        initializer.CopyFrom(tensor)
        initializer.values.name = "k"
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
    proto = added(where, sparse(DENSE))
    _put(proto.graph, changed(dims=dims))
    with pytest.raises(BudgetError, match="budget"):
        Session(proto, cache_dir=None)


def test_several_that_are_too_much_together() -> None:
    proto = added("initializer", sparse(np.ones((300,), np.float32)))
    proto.graph.sparse_initializer.append(sparse(np.ones((300,), np.float32), "other"))
    Session(proto, cache_dir=None, max_bytes=1 << 16).close()
    with pytest.raises(BudgetError):
        Session(proto, cache_dir=None, max_bytes=2000)


def test_names_that_are_taken_or_absent() -> None:
    proto = added("initializer", sparse(DENSE))
    proto.graph.sparse_initializer.append(sparse(DENSE))
    with pytest.raises(ModelError, match="two initializers"):
        Session(proto, cache_dir=None)
    with pytest.raises(ModelError):
        Session(added("initializer", sparse(DENSE, name="")), cache_dir=None)


def test_a_sparse_default_may_be_overridden() -> None:
    proto = added("initializer", sparse(DENSE))
    proto.graph.input.append(helper.make_tensor_value_info("k", TensorProto.FLOAT, [2, 3]))
    with Session(proto, cache_dir=None) as session:
        for feeds, k in ((ONES, DENSE), ({**ONES, "k": ONES["x"]}, ONES["x"])):
            np.testing.assert_array_equal(session.run(None, feeds)[0], ONES["x"] + k)


def test_a_model_with_sparse_tensors_is_exported_dense(tmp_path: Path) -> None:
    path = tmp_path / "dense.onnx"
    save_onnx(load_onnx(added("initializer", sparse(DENSE))), path)
    assert not onnx.load(path).graph.sparse_initializer
    np.testing.assert_array_equal(run_once(path, ONES, cache_dir=None)[0], ONES["x"] + DENSE)


def test_a_branch_in_a_function_has_one() -> None:
    proto = model(
        """<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
        g (float[2, 3] x, bool c) => (float[2, 3] y) { y = own.F(x, c) }
        <domain: "own", opset_import: ["" : 18]>
        F (a, c) => (b) {
            b = If(c) < then_branch = t() => (float[2, 3] sum) { sum = Add(a, k) },
                        else_branch = e() => (float[2, 3] minus) { minus = Neg(a) } > }"""
    )
    then = next(a.g for a in proto.functions[0].node[0].attribute if a.name == "then_branch")
    then.sparse_initializer.append(sparse(DENSE))
    with Session(proto, cache_dir=None) as session:
        for c, expected in ((True, ONES["x"] + DENSE), (False, -ONES["x"])):
            [y] = session.run(None, {**ONES, "c": np.array(c)})
            np.testing.assert_array_equal(y, expected)
