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
    """The operator in a graph of its own, and what it is given."""
    graph, values, arrays = Graph("one"), [], []
    for index, dims in enumerate(case.inputs):
        array = np.random.default_rng(index).standard_normal(tuple(dims.values()), np.float32)
        array = array if index < case.moving else abs(array) + np.float32(0.1)
        name = f"x{index}"
        moves = index < case.moving
        values.append(graph.input(name, dims) if moves else graph.constant(array, list(dims), name))
        arrays.append(array)
    graph.output(graph.add(case.op, *values, name="node"), "y")
    return graph.seal(), graph.nodes["node"], arrays


def oracle(case: Case) -> Array:
    """What VTensor's definition makes of it."""
    graph, _, arrays = graph_of(case)
    feeds = {name: arrays[int(name[1:])] for name in graph.inputs}
    with Session(graph, libraries=["numpy"], optimize="none") as session:
        [answer] = session.run(None, feeds)
    return np.asarray(answer)


def tensor_of(array: Array, tag: str = "") -> Tensor:
    """An array in a layout; without one it is a constant."""
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
    """Memory that holds nothing but NaN."""
    memory = fresh(nbytes)
    memory.fill(0xFF)
    return memory


def empty(desc: Desc) -> Tensor:
    """A tensor that holds nothing but NaN."""
    made = Tensor(desc, memory_of(desc.nbytes))
    made.memory.bind(Buffer(spoilt(desc.nbytes)))
    return made


def execute(step: RecordedStep) -> None:
    """Run a step now; what it writes first has been NaN."""
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
    """What a layout-aware operator makes of it on a library."""
    graph, node, _ = graph_of(case)
    ctx = Context()
    ctx.kind, ctx.node = info_of(node.op).name, node.name
    y = operator_of(graph, node).run(ctx, [library], *aligned(graph, node, inputs))
    for source, target in ctx.loads:
        target.memory.bind(Buffer(spoilt(target.desc.nbytes)))
        transfer(source, target)
    for one in ctx.steps:
        execute(one.step)
    return y, ctx


def values(y: Tensor) -> Array:
    """The elements of a tensor; pads, where there are any, are 0."""
    back, again = empty(plain(y.dims)), empty(y.desc)
    transfer(y, back)
    transfer(back, again)
    found, clean = (one.memory.buffer.memory.view(np.float32) for one in (y, again))
    np.testing.assert_array_equal(found, clean)
    return np.asarray(back.array())


def given(case: Case) -> list[list[Tensor]]:
    """The inputs in all layouts: the first in each, the others in each, constants as they are."""
    _, _, arrays = graph_of(case)
    tags = LAYOUTS.get(len(case.inputs[0]), [""])
    pairs = [*zip(tags, tags, strict=True), *zip(tags, [*tags[1:], *tags[:1]], strict=True)]
    rows = []
    for tag, other in pairs if case.moving > 1 else product(tags, [""]):
        names = [tag, *[other] * (case.moving - 1), *[""] * (len(arrays) - case.moving)]
        rows.append([tensor_of(array, name) for array, name in zip(arrays, names, strict=True)])
    return rows


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_definition(name: str) -> None:
    case = CASES[name]
    expected = oracle(case)
    for library, inputs in product(LIBRARIES, given(case)):
        if library in case.declined:
            with pytest.raises(NoInvokerError, match=library):
                computed(case, library, inputs)
            continue
        y, ctx = computed(case, library, inputs)
        assert y.library == library
        assert {one.step.library for one in ctx.steps if one.kind != CONVERSION} == {library}
        assert difference(values(y).reshape(expected.shape), expected) <= 1e-5, (library, inputs)


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
        expected = oracle(case)
        inputs = given(case)[layouts]
        y, _ = computed(case, library, inputs)
        assert not difference(values(y).reshape(expected.shape), expected) <= 1e-2, name


def test_nan_comes_through_bounds() -> None:
    for library, name in product(LIBRARIES, ("relu", "relu6")):
        case = CASES[name]
        array = np.full(tuple(case.inputs[0].values()), np.nan, np.float32)
        for tag in LAYOUTS[4]:
            x = tensor_of(np.where(np.arange(array.size).reshape(array.shape) % 2, array, 1), tag)
            y, _ = computed(case, library, [x])
            found = np.isnan(values(y).ravel())
            assert (found == (np.arange(array.size) % 2 == 1)).all(), (library, name, tag)


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused(name: str) -> None:
    op, inputs, says = WRONG[name]
    made = OPERATORS[info_of(op).name](op, [list(dims) for dims in inputs])
    tensors = [tensor_of(np.zeros(tuple(dims.values()), np.float32)) for dims in inputs]
    for library in LIBRARIES:
        with pytest.raises(DimError, match=says):
            made.run(Context(), [library], *tensors)


@pytest.mark.parametrize("pair", [("abcd", "acdb"), ("acdb", "aBcd8b"), ("aBcd8b", "aBcd16b")])
@pytest.mark.parametrize("dims", [(2, 16, 5, 5), (1, 8, 1, 1), (3, 1, 4, 4), (1, 20, 1, 1)])
def test_lying_alike(pair: tuple[str, str], dims: tuple[int, ...]) -> None:
    """Two layouts are alike exactly if all elements are at the same places."""
    array = np.arange(np.prod(dims), dtype=np.float32).reshape(dims) + 1
    one, other = (tensor_of(array, tag) for tag in pair)
    places = [x.memory.buffer.memory.tobytes() for x in (one, other)]
    assert lies_as(one.desc, other.desc) == (places[0] == places[1])
