"""Whole graphs out and in again: structure, names, open sizes, files, and what is not believed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from onnx import ModelProto, numpy_helper

import ops
from eval.networks.models import light_model, light_names, seeded
from libdesc import invoker
from ptensor import Layout, PTensor, lib_tagger
from tests.export.graphs import graphs
from tests.export.support import RUNTIME, Array, bare, checked, runtime
from tests.frontends.support import f32, run_once
from tests.libraries.slow import slow_but
from tests.operators.harness import check_close
from tests.property.strategies import laws
from vtensor import Graph, Session, VTensor, load_onnx, save_onnx
from vtensor.errors import InputError, UnsupportedOperatorError
from vtensor.frontends.export import export
from vtensor.language.operators import Context, operator, param
from vtensor.language.spelling import Naming, NodeReader, NodeWriter, Spelling
from vtensor.language.traits import Elementwise


def biased(batch: int | None = 2) -> Graph:
    """Build two convolutions and a product, each with a bias: ``conv``, ``each``, ``product``."""
    graph = Graph("biased")
    x = graph.input("x", {"N": batch, "C": 3, "H": 6, "W": 5})

    def bias(value: VTensor, dim: str) -> VTensor:
        b = graph.constant(f32(value.size(dim)), dim)
        return graph.add(ops.BiasAdd(), value, b)

    w = graph.constant(f32(4, 3, 3, 3), "O I h w", "w")
    y = bias(graph.add(ops.Conv2D(pads=(1, 1, 1, 1)), x, w, name="conv"), "C")
    each = graph.constant(f32(4, 2, 1, 3, 3), "G O I h w", "each:w")
    y = bias(graph.add(ops.DepthwiseConv2D(), graph.add(ops.Relu(), y), each, name="each"), "C")
    flat = graph.add(ops.Reshape((("N", y.size("N")), ("F", 8 * 4 * 3))), y)
    turned = graph.constant(f32(7, 8 * 4 * 3), "K F", "turned")
    graph.output(bias(graph.add(ops.MatMul("F"), flat, turned, name="product"), "K"), "logits")
    return graph.seal()


def check_elsewhere(source: Any, model: ModelProto, feeds: dict[str, Array]) -> None:
    """Check that ONNX Runtime answers to a model as we do."""
    for ours, theirs in zip(run_once(source, feeds), runtime(model, feeds), strict=True):
        check_close(ours, theirs, 1e-5)


def op_types(model: ModelProto) -> list[str]:
    """Return ONNX's operators in a model, in order."""
    return [node.op_type for node in model.graph.node]


def test_a_bias_is_a_part_of_its_convolution_and_its_product() -> None:
    graph = biased()
    model = checked(graph, 17)
    assert op_types(model) == ["Conv", "Relu", "Conv", "Reshape", "Gemm"]
    shapes = {t.name: list(t.dims) for t in model.graph.initializer}
    assert shapes["each:w"] == [8, 1, 3, 3]
    assert load_onnx(model) == graph
    read = [node.op_name for node in load_onnx(bare(model)).nodes.values()]
    assert read == [node.op_name for node in graph.nodes.values()]
    check_elsewhere(graph, model, {"x": f32(2, 3, 6, 5)})


def test_a_bias_that_others_read_too_stays_apart() -> None:
    graph = Graph("apart")
    x = graph.input("x", {"N": 1, "C": 2, "H": 3, "W": 3})
    y = graph.add(ops.Conv2D(), x, graph.constant(f32(2, 2, 1, 1), "O I h w"))
    graph.output(graph.add(ops.BiasAdd(), y, graph.constant(f32(2), "C")))
    graph.output(y)
    model = checked(graph, 17)
    assert op_types(model) == ["Conv", "Add"]
    assert load_onnx(model) == graph


def test_open_sizes_are_symbols() -> None:
    graph = biased(None)
    model = checked(graph, 17)
    [port] = model.graph.input
    assert [d.dim_param or d.dim_value for d in port.type.tensor_type.shape.dim] == ["N", 3, 6, 5]
    assert [d.denotation for d in port.type.tensor_type.shape.dim] == ["N", "C", "H", "W"]
    assert load_onnx(model) == graph
    assert load_onnx(model, shapes={"x": (5, 3, 6, 5)}) == graph.with_sizes({"N": 5})
    with pytest.raises(InputError, match="input 'x'"):
        load_onnx(model, shapes={"x": (5, 4, 6, 5)})
    with Session(model) as session:
        assert session.inputs[0].dims == ("N", "C", "H", "W")
        for batch in (1, 3):
            x = f32(batch, 3, 6, 5)
            [ours], [theirs] = session.run(None, {"x": x}), runtime(model, {"x": x})
            check_close(ours, theirs, 1e-5)


@laws(100)
@given(graphs())
def test_random_graphs_come_back_equal(graph: Graph) -> None:
    try:
        model = checked(graph, 17)
    except UnsupportedOperatorError as error:
        assert "open" in str(error) or "repeated" in str(error)  # noqa: PT017  # the reason
        return
    assert load_onnx(model) == graph


@laws(100)
@given(graphs(open_sizes=False))
def test_random_graphs_compute_the_same_elsewhere(graph: Graph) -> None:
    try:
        model = checked(graph, RUNTIME)
    except UnsupportedOperatorError:
        return
    feeds: dict[str, Array] = {
        name: f32(*graph.values[name].dims.values()) for name in graph.inputs
    }
    ours, read = (run_once(source, feeds, libraries=["numpy"]) for source in (graph, bare(model)))
    for y, again, theirs in zip(ours, read, runtime(model, feeds), strict=True):
        check_close(y, again, 1e-4)
        check_close(y, theirs, 1e-4)


def _attribute(model: ModelProto) -> None:
    [pads] = [a for a in model.graph.node[0].attribute if a.name == "pads"]
    pads.ints[:] = [2, 2, 0, 0]


def _text(model: ModelProto) -> None:
    entry = model.metadata_props[0]
    entry.value = entry.value.replace("(1, 1, 1, 1)", "(2, 2, 0, 0)")


def _weight(model: ModelProto) -> None:
    [weights] = [t for t in model.graph.initializer if t.name == "w"]
    weights.CopyFrom(numpy_helper.from_array(np.full((4, 3, 3, 3), 7, np.float32), "w"))


@pytest.mark.parametrize(
    ("change", "pads"),
    [
        (_attribute, "pads=(2, 2, 0, 0)"),
        (_text, "pads=(1, 1, 1, 1)"),
        (lambda model: setattr(model.metadata_props[0], "value", "graph of a function ("), "pads="),
        (_weight, "pads=(1, 1, 1, 1)"),
    ],
    ids=["an attribute", "the text", "no text", "a weight"],
)
def test_a_graphs_text_adds_names_to_what_its_nodes_say_and_nothing_else(
    change: Callable[[ModelProto], object], pads: str
) -> None:
    model, graph = export(biased()), biased()
    change(model)
    again = load_onnx(model)
    assert pads in str(again)
    assert len(again.nodes) == len(graph.nodes)
    if change is _weight:
        assert again != graph
        assert str(again).splitlines()[1:3] == str(graph).splitlines()[1:3]
        assert (again.constants["w"] == 7).all()


def test_constants_that_are_no_numbers() -> None:
    graph = Graph("nan")
    x = graph.input("x", {"N": 1})
    graph.output(graph.add(ops.Pad(("N",), (1, 0), value=np.nan), x))
    assert load_onnx(checked(graph, 17)) == graph


def test_what_cannot_be_written_is_listed() -> None:
    graph = Graph("late")
    x = graph.input("x", {"N": 1, "C": 2, "H": 3, "W": 3})
    y = graph.add(ops.Gelu(), x, name="smooth")
    graph.output(graph.add(ops.Det("H", "W"), y, name="volume"))
    with pytest.raises(UnsupportedOperatorError) as error:
        export(graph)
    assert str(error.value).splitlines()[:2] == [
        "graph 'late' cannot be written in opset 17 of ONNX",
        "  Gelu 'smooth' : ONNX has Gelu from opset 20 on",
    ]
    assert "Det 'volume' : VTensor does not write this operator" in str(error.value)
    for opset in (16, 999, "17"):
        with pytest.raises(InputError, match="is not among 17 to"):
            export(graph, opset)  # type: ignore[arg-type]  # the last is no number


def test_names_that_collide() -> None:
    """An output may have the name of another value, a node that of another's output."""
    graph = Graph("names")
    x = graph.input("x", {"N": 1, "C": 2})
    a = graph.add(ops.Relu(), x, name="a")
    b = graph.add(ops.Softmax(("C", "N")), a, name="b", outputs=["b:reshape"])
    graph.output(a, "b:reshape")
    graph.output(b, "a")
    graph.output(b, "again")
    graph.output(graph.add(ops.Add(), b, x, name="y", outputs=["z"]), "y")
    graph.output(x, "same")
    model = checked(graph, 17)
    assert load_onnx(model) == graph
    check_elsewhere(graph, model, {"x": f32(1, 2)})


def twice() -> type:
    """Register an operator of a plugin's own domain; it is gone after the test."""

    def names(node: Naming) -> None:
        node.same("x0", 0, "y0", 0)
        node.same("x0", 1, "y0", 1)

    def read(node: NodeReader) -> VTensor:
        how = node.attribute("how", "")
        return node.add(
            Twice(node.axis(int(node.attribute("axis", 0)), x := node.input(0)), how), x
        )

    def write(node: NodeWriter, op: Twice) -> None:
        [x] = node.inputs
        order = sorted(x.dims)
        given = {"axis": order.index(op.axis), "how": op.how or None, "empty": ()}
        node.emit("my.domain::Twice", node.operand(x, order), order=order, **given)

    @operator(
        "Twice",
        dims={"x": "*", "y": "*"},
        onnx=Spelling("my.domain::Twice", 3, read, names, write=write),
        traits=[Elementwise()],
    )
    @dataclass(frozen=True)
    class Twice:
        axis: str = param()
        how: str = param(default="")

        def compute(self, ctx: Context, x: VTensor) -> VTensor:
            y = VTensor(x.dtype, x.dims, ctx.output(0))
            ctx.dispatch(self, [x], [y])
            return y

    @invoker("Twice", library="numpy", python=True)
    def numpy_twice(ctx: Context, op: Twice, x: VTensor, y: VTensor) -> None:
        src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
        if not lib_tagger("numpy", [src], [dst]):
            dst.data()[...] = 2 * src.data()

    return Twice


def test_an_operator_of_another_domain(scratch: None, tmp_path: Path) -> None:
    graph = Graph("foreign")
    x = graph.input("x", {"N": None, "C": 3})
    y = graph.add(twice()("C", "well"), graph.add(ops.Relu(), x), name="double")
    graph.output(y, "y")
    save_onnx(graph.seal(), tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(model)
    imports = {entry.domain: entry.version for entry in model.opset_import}
    assert imports == {"": 17, "my.domain": 3}
    [node] = [node for node in model.graph.node if node.op_type == "Twice"]
    assert (node.domain, [a.name for a in node.attribute]) == ("my.domain", ["axis", "how"])
    assert load_onnx(tmp_path / "m.onnx") == graph
    array = f32(2, 3)
    for source in (model, bare(model), graph):
        np.testing.assert_array_equal(run_once(source, {"x": array})[0], array.clip(0) * 2)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small weights are in the file, large ones beside it; both may be written over."""
    graph, file = biased(), tmp_path / "m.onnx"
    save_onnx(graph, file, opset=RUNTIME)
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
    assert load_onnx(file) == graph
    monkeypatch.setattr("vtensor.frontends.export.EXTERNAL_BYTES", 1 << 10)
    save_onnx(graph, file)
    onnx.checker.check_model(str(file), full_check=True)
    again = load_onnx(file)
    assert again == graph
    assert (tmp_path / "m.onnx.data").stat().st_size >= graph.constants["turned"].nbytes
    check_elsewhere(file, onnx.load(file), {"x": f32(2, 3, 6, 5)})
    save_onnx(again, file, opset=RUNTIME)
    assert again == load_onnx(file) == graph
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]


def test_nothing_is_left_of_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    with pytest.raises(InputError, match="the model cannot be written there"):
        save_onnx(biased(), tmp_path / "nowhere" / "m.onnx")
    (tmp_path / "m.onnx").write_text("as before")
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match="no space left"):
        save_onnx(biased(), tmp_path / "m.onnx")
    [left] = tmp_path.iterdir()
    assert left.read_text() == "as before"


QUICK = ("squeezenet", "shufflenet")


@pytest.mark.parametrize("name", slow_but(QUICK, light_names()))
def test_a_network_written_in_two_opsets_is_read_as_it_was(name: str) -> None:
    model = seeded(light_model(name), 0)
    graph = load_onnx(model)
    feeds: dict[str, Array] = {
        name: f32(*graph.values[name].dims.values()) for name in graph.inputs
    }
    [expected] = runtime(model, feeds)
    for opset in (17, RUNTIME):
        written = checked(graph, opset)
        assert load_onnx(written) == graph
        check_close(runtime(written, feeds)[0], expected, 1e-4)
    assert len(load_onnx(bare(written)).nodes) <= len(graph.nodes) + 2
