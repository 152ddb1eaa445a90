"""Layout-aware operators, in every layout that they may get, against VTensor's definitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eval.compare import difference
from eval.layout_aware.base import LIBRARIES
from eval.layout_aware.context import CONVERSION, Context
from eval.layout_aware.reading import OPERATORS, aligned, operator_of
from eval.layout_aware.tensor import DTYPE, Tensor, lies_as, memory_of, plain
from eval.tests.cases import CASES, WRONG, Case
from libdesc.onednn.native import dnnl
from ptensor.buffer import Buffer, fresh
from vtensor import Graph, Session
from vtensor.errors import DimError, NoInvokerError
from vtensor.language.node import Node
from vtensor.language.operators import info_of
from vtensor.runtime.execution.evaluations import run_native
from vtensor.runtime.execution.steps import RecordedStep

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Desc

Array = NDArray[Any]
#: How a tensor of so many axes may come.
LAYOUTS = {2: ["ab"], 3: ["abc"], 4: ["abcd", "acdb", "aBcd8b", "aBcd16b"]}


def graph_of(case: Case) -> tuple[Graph, Node, list[Array]]:
    """Return the operator in a graph of its own, its node and its operands."""
    graph, values, arrays = Graph("one"), [], []
    for index, dims in enumerate(case.inputs):
        moves, name = index < case.moving, f"x{index}"
        array = np.random.default_rng(index).standard_normal(tuple(dims.values()), np.float32)
        array = array if moves else abs(array) + np.float32(0.1)
        values.append(graph.input(name, dims) if moves else graph.constant(array, list(dims), name))
        arrays.append(array)
    graph.output(graph.add(case.op, *values, name="node"), "y")
    return graph.seal(), graph.nodes["node"], arrays


def oracle(case: Case) -> Array:
    """Return the result of VTensor's definition."""
    graph, _, arrays = graph_of(case)
    feeds = {name: arrays[int(name[1:])] for name in graph.inputs}
    with Session(graph, libraries=["numpy"], optimize="none") as session:
        return np.asarray(session.run(None, feeds)[0])


def tensor_of(array: Array, tag: str = "") -> Tensor:
    """Return an array in a layout; without one it is a constant."""
    flat = np.ascontiguousarray(array)
    source = Tensor(plain(flat.shape or (1,)), memory_of(flat.nbytes), constant=not tag)
    source.memory.bind(Buffer.wrap(flat))
    if not tag:
        return source
    moved = empty(dnnl.Desc.tag(array.shape, DTYPE, tag))
    transfer(source, moved)
    return moved


def transfer(source: Tensor, target: Tensor) -> None:
    """The same elements in another layout, from memory to memory."""
    memory = [one.memory.buffer.memory for one in (source, target)]
    run_native(dnnl.reorder(source.desc, target.desc), memory, "")


def spoilt(nbytes: int) -> Array:
    """Return memory full of NaN."""
    memory = fresh(nbytes)
    memory.fill(0xFF)
    return memory


def empty(desc: Desc) -> Tensor:
    """Return a tensor full of NaN."""
    tensor = Tensor(desc, memory_of(desc.nbytes))
    tensor.memory.bind(Buffer(spoilt(desc.nbytes)))
    return tensor


def execute(step: RecordedStep) -> None:
    """Run a step; memory that it is first to write is full of NaN."""
    for slot in step.slots:
        if not isinstance(slot, int) and not slot.bound:
            slot.bind(Buffer(spoilt(slot.nbytes)))
    if step.native is None:
        assert step.callback
        step.callback()
        return
    memory = [spoilt(slot) if isinstance(slot, int) else slot.buffer.memory for slot in step.slots]
    run_native(step.native, memory, step.node)


def computed(case: Case, library: str, inputs: Sequence[Tensor]) -> tuple[Tensor, Context]:
    """Run a layout-aware operator on a library."""
    graph, node, _ = graph_of(case)
    ctx = Context()
    ctx.kind, ctx.node = info_of(node.op).name, node.name
    y = operator_of(graph, node).run(ctx, [library], *aligned(graph, node, inputs))
    for source, target in ctx.loads:
        target.memory.bind(Buffer(spoilt(target.desc.nbytes)))
        transfer(source, target)
    for row in ctx.steps:
        execute(row.step)
    return y, ctx


def values(y: Tensor) -> Array:
    """Return the elements of a tensor, and check that its pads are 0."""
    back, clean = empty(plain(y.dims)), empty(y.desc)
    transfer(y, back)
    transfer(back, clean)
    own, expected = (tensor.memory.buffer.memory.view(np.float32) for tensor in (y, clean))
    np.testing.assert_array_equal(own, expected)
    return np.asarray(back.array())


def given(case: Case) -> list[list[Tensor]]:
    """Return the inputs in all layouts; constants have none."""
    _, _, arrays = graph_of(case)
    tags = LAYOUTS.get(len(case.inputs[0]), [""])
    pairs = [*zip(tags, tags, strict=True), *zip(tags, [*tags[1:], *tags[:1]], strict=True)]
    rows = []
    for tag, other in pairs if case.moving > 1 else product(tags, [""]):
        names = [tag, *[other] * (case.moving - 1), *[""] * (len(arrays) - case.moving)]
        rows.append([tensor_of(array, name) for array, name in zip(arrays, names, strict=True)])
    return rows


def apart(case: Case, library: str, inputs: Sequence[Tensor], expected: Array) -> float:
    """Return how far a library's result is from the definition's."""
    y, ctx = computed(case, library, inputs)
    assert y.library == library
    assert {row.step.library for row in ctx.steps if row.kind != CONVERSION} == {library}
    return difference(values(y).reshape(expected.shape), expected)


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_definition(name: str) -> None:
    case = CASES[name]
    expected = oracle(case)
    for library, inputs in product(LIBRARIES, given(case)):
        if library in case.declined:
            with pytest.raises(NoInvokerError, match=library):
                computed(case, library, inputs)
        else:
            assert apart(case, library, inputs, expected) <= 1e-5, (library, inputs)


def test_every_operator_has_a_case() -> None:
    known = {info_of(case.op).name for case in CASES.values()}
    assert known == OPERATORS.keys() - {"Reshape"}
    assert known - {info_of(op).name for op, _, _ in WRONG.values()} == {"Relu", "Relu6"}
    assert len(known) == 16


def test_a_conversion_left_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: an operator that takes what comes for what it wants."""
    monkeypatch.setattr(Context, "convert", lambda _, x, desc: replace(x, desc=desc))
    rows = ("concat-rows", "onednn", 4), ("relu6", "eigen", 0), ("mean", "numpy", 1)
    for name, library, layouts in rows:
        case = CASES[name]
        assert not apart(case, library, given(case)[layouts], oracle(case)) <= 1e-2, name


@pytest.mark.parametrize("name", ["relu", "relu6"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_nan_comes_through_bounds(library: str, name: str) -> None:
    case = CASES[name]
    array = np.full(tuple(case.inputs[0].values()), np.nan, np.float32)
    array.flat[::2] = 1
    for tag in LAYOUTS[4]:
        y, _ = computed(case, library, [tensor_of(array, tag)])
        assert (np.isnan(values(y)) == np.isnan(array)).all(), tag


@pytest.mark.parametrize("name", WRONG)
def test_operands_that_do_not_fit_are_refused(name: str) -> None:
    op, inputs, reason = WRONG[name]
    operator = OPERATORS[info_of(op).name](op, [list(dims) for dims in inputs])
    tensors = [tensor_of(np.zeros(tuple(dims.values()), np.float32)) for dims in inputs]
    for library in LIBRARIES:
        with pytest.raises(DimError, match=reason):
            operator.run(Context(), [library], *tensors)


@pytest.mark.parametrize("pair", [("abcd", "acdb"), ("acdb", "aBcd8b"), ("aBcd8b", "aBcd16b")])
@pytest.mark.parametrize("dims", [(2, 16, 5, 5), (1, 8, 1, 1), (3, 1, 4, 4), (1, 20, 1, 1)])
def test_layouts_are_alike_exactly_if_all_elements_are_at_the_same_places(
    pair: tuple[str, str], dims: tuple[int, ...]
) -> None:
    array = np.arange(np.prod(dims), dtype=np.float32).reshape(dims) + 1
    first, second = (tensor_of(array, tag) for tag in pair)
    same = first.memory.buffer.memory.tobytes() == second.memory.buffer.memory.tobytes()
    assert lies_as(first.desc, second.desc) == same
