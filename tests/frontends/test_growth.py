"""Loading a model and planning its first run take work that grows with the model, not its square.

Work is counted in lines of Python, so that nothing depends on a machine's speed: of each function,
for models of n, 2n and 3n parts. The second difference of a linear count is about 0; of a loop in a
loop over the parts it is at least about n * n.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from vtensor import Session

ROOT = Path(__file__).parents[2]
#: Parts of the smallest model: more than any limit on neighbours that a pass looks at.
PARTS = 64
#: Shares of n * n that a function's second difference may reach; a loop in a loop has 1 or more.
SHARE = 0.25

Lines = Counter[str]


def value(name: str, *shape: int | str) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape or (3,))


def network(
    nodes: list[NodeProto],
    inputs: list[ValueInfoProto],
    outputs: list[ValueInfoProto],
    **constants: Any,
) -> ModelProto:
    arrays = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def spread(op_type: str, n: int, size: int = 3, **attributes: Any) -> ModelProto:
    """Build n nodes on one input, and one node that reads them all."""
    names = [f"r{i}" for i in range(n)]
    nodes = [helper.make_node("Relu", ["x"], [name], name="same") for name in names]
    nodes.append(helper.make_node(op_type, names, ["y"], **attributes))
    return network(nodes, [value("x")], [value("y", size)])


def sums(n: int) -> ModelProto:
    return spread("Sum", n)


def maxima(n: int) -> ModelProto:
    return spread("Max", n)


def joined(n: int) -> ModelProto:
    return spread("Concat", n, 3 * n, axis=0)


def chained(n: int) -> ModelProto:
    """Build sums with n constants one after another."""
    names = ["x", *(f"r{i}" for i in range(n - 1)), "y"]
    nodes = [helper.make_node("Add", [names[i], f"c{i}"], [names[i + 1]]) for i in range(n)]
    constants = {f"c{i}": np.full(3, i, np.float32) for i in range(n)}
    return network(nodes, [value("x")], [value("y")], **constants)


def ends(n: int) -> ModelProto:
    """Build n inputs of open sizes and n outputs."""
    nodes = [helper.make_node("Relu", [f"x{i}"], [f"y{i}"]) for i in range(n)]
    ports = [[value(f"{name}{i}", f"s{i}") for i in range(n)] for name in "xy"]
    return network(nodes, *ports)


def divided(n: int) -> ModelProto:
    names = [f"s{i}" for i in range(n)]
    nodes = [helper.make_node("Split", ["x"], names, axis=0, num_outputs=n)]
    nodes.append(helper.make_node("Sum", names, ["y"]))
    return network(nodes, [value("x", n)], [value("y", 1)])


def branches(n: int) -> ModelProto:
    """Build n operators If that a value decides, and their sum."""
    bodies = {
        name: helper.make_graph([helper.make_node(op, ["x"], ["p"])], op, [], [value("p")])
        for name, op in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    names = [f"r{i}" for i in range(n)]
    nodes = [helper.make_node("If", ["c"], [name], **bodies) for name in names]
    nodes.append(helper.make_node("Sum", names, ["y"]))
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    return network(nodes, [value("x"), condition], [value("y")])


def loop(n: int) -> ModelProto:
    """Build a Loop of n iterations."""
    boolean = {name: helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in "cd"}
    number = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    nodes = [
        helper.make_node("Add", ["v", "x"], ["w"]),
        helper.make_node("Identity", ["c"], ["d"]),
    ]
    body = helper.make_graph(
        nodes, "b", [number, boolean["c"], value("v")], [boolean["d"], value("w")]
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    return network([node], [value("x")], [value("y")], n=np.array(n))


@contextmanager
def counted() -> Iterator[Lines]:
    """Count the project's lines that run on this thread, by function."""
    lines: Lines = Counter()

    def line(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            lines[f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"] += 1
        return line

    def call(frame: FrameType, event: str, _: object) -> Any:
        return line if frame.f_code.co_filename.startswith(str(ROOT)) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield lines
    finally:
        sys.settrace(before)


def first_run(proto: ModelProto) -> None:
    feeds = {
        port.name: np.zeros(
            [size.dim_value or 3 for size in port.type.tensor_type.shape.dim],
            helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type),
        )
        for port in proto.graph.input
    }
    with Session(proto, cache_dir=None, threads=1) as session:
        session.run(None, feeds)


def squared(work: Callable[[int], None]) -> dict[str, int]:
    """Return the functions whose lines grow faster than the parts, with second differences."""
    work(PARTS)  # imports and caches
    counts = []
    for n in (PARTS, 2 * PARTS, 3 * PARTS):
        with counted() as lines:
            work(n)
        counts.append(lines)
    first, second, third = counts
    found = {name: third[name] - 2 * second[name] + first[name] for name in third}
    return {name: count for name, count in found.items() if count > SHARE * PARTS * PARTS}


@pytest.mark.parametrize(
    "build",
    [sums, maxima, joined, chained, ends, divided, branches, loop],
    ids=lambda f: f.__name__,
)
def test_work_grows_with_the_model(build: Callable[[int], ModelProto]) -> None:
    assert squared(lambda n: first_run(build(n))) == {}


def test_a_loop_in_a_loop_is_seen() -> None:
    """The twin."""

    def work(n: int) -> None:
        for i in range(n):
            while i > 0:
                i -= 1

    assert [name.rpartition(".")[2] for name in squared(work)] == ["work"]
