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
from onnx import ModelProto, helper

from tests.frontends.support import model, run_once

ROOT = Path(__file__).parents[2]
#: Parts of the smallest model: more than any limit on neighbours that a pass looks at.
PARTS = 64
#: Shares of n * n that a function's second difference may reach; a loop in a loop has 1 or more.
SHARE = 0.25

Lines = Counter[str]

BRANCHES = """If(c) < then_branch = a() => (float[3] p) { p = Relu(x) },
                       else_branch = b() => (float[3] p) { p = Neg(x) } >"""


def each(pattern: str, n: int, separator: str = ", ") -> str:
    """Return a text for each number below n, which takes the place of ``#``."""
    return separator.join(pattern.replace("#", str(i)) for i in range(n))


def spread(node: str, last: str, n: int, inputs: str = "float[3] x") -> ModelProto:
    """Build n nodes on one input, and one node that reads them all."""
    nodes = each(f"[same] r# = {node}", n, " ")
    return model(f"g ({inputs}) => (float[m] y) {{ {nodes} y = {last}({each('r#', n)}) }}", 18)


def chained(n: int) -> ModelProto:
    """Build sums with n constants one after another."""
    constants = each("float[3] c# = {#, #, #}", n)
    nodes = " ".join(f"r{i + 1} = Add(r{i}, c{i})" for i in range(n))
    return model(f"g (float[3] r0) => (float[3] r{n}) <{constants}> {{ {nodes} }}", 18)


def ends(n: int) -> ModelProto:
    """Build n inputs of open sizes and n outputs."""
    inputs, outputs = each("float[s#] x#", n), each("float[s#] y#", n)
    return model(f"g ({inputs}) => ({outputs}) {{ {each('y# = Relu(x#)', n, ' ')} }}", 18)


def divided(n: int) -> ModelProto:
    parts = each("s#", n)
    split = f"{parts} = Split<axis = 0, num_outputs = {n}>(x)"
    return model(f"g (float[{n}] x) => (float[1] y) {{ {split} y = Sum({parts}) }}", 18)


def loop(n: int) -> ModelProto:
    """Build a Loop of n iterations."""
    return model(
        """g (float[3] x) => (float[3] y) {
        y = Loop(n, , x) < body = b(int64 i, bool c, float[3] v) => (bool d, float[3] w) {
            w = Add(v, x) d = Identity(c) } > }""",
        18,
        n=np.array(n),
    )


BUILDERS: dict[str, Callable[[int], ModelProto]] = {
    "sums": lambda n: spread("Relu(x)", "Sum", n),
    "maxima": lambda n: spread("Relu(x)", "Max", n),
    "joined": lambda n: spread("Relu(x)", "Concat<axis = 0>", n),
    "branches": lambda n: spread(BRANCHES, "Sum", n, "float[3] x, bool c"),
    "chained": chained,
    "ends": ends,
    "divided": divided,
    "loop": loop,
}


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
    feeds = {}
    for port in proto.graph.input:
        tensor = port.type.tensor_type
        shape = [size.dim_value or 3 for size in tensor.shape.dim]
        feeds[port.name] = np.zeros(shape, helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    run_once(proto, feeds, cache_dir=None, threads=1)


def squared(work: Callable[[int], None]) -> dict[str, int]:
    """Return the functions whose lines grow faster than the parts, with second differences."""
    work(PARTS)  # imports and caches
    counts = []
    for n in (PARTS, 2 * PARTS, 3 * PARTS):
        with counted() as lines:
            work(n)
        counts.append(lines)
    first, second, third = counts
    differences = {name: third[name] - 2 * second[name] + first[name] for name in third}
    return {name: count for name, count in differences.items() if count > SHARE * PARTS * PARTS}


@pytest.mark.parametrize("name", BUILDERS)
def test_work_grows_with_the_model(name: str) -> None:
    assert squared(lambda n: first_run(BUILDERS[name](n))) == {}


def test_a_loop_in_a_loop_is_seen() -> None:
    """The twin."""

    def work(n: int) -> None:
        for i in range(n):
            while i > 0:
                i -= 1

    assert [name.rpartition(".")[2] for name in squared(work)] == ["work"]
