"""Convolution on Eigen compared with Eigen's own matrix product.

``python -m eval.kernels.eigen_convolution``.

For each distinct convolution of ResNet-50 at batch 1: the rate of a plain matrix product of the
same rows, columns and depth, of VTensor's convolution on Eigen, and of oneDNN's. A rate is that of
the fastest run, a ratio the median over rounds, in which all three run in random order; the machine
must be idle. All run on an executor of ``--threads``, for which oneDNN also compiles its
primitives. Each cap on the instruction set has a process of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from eval.networks.models import light_model
from libdesc.eigen import native as eigen
from libdesc.onednn import native as onednn
from ptensor.buffer import Buffer
from vtensor import limit_isa, load_onnx
from vtensor.commands.shared import progress
from vtensor.runtime import _replay
from vtensor.runtime.execution.executor import Executor

if TYPE_CHECKING:
    from libdesc.eigen._eigen import Window

CAPS = ("sse41", "avx2", "avx512")
#: The least accepted ratio of a convolution's rate to that of the product with the same work.
MARK = 0.5


class Shape(NamedTuple):
    """A convolution over one image; image and kernel are squares.

    Attributes:
        inputs, outputs: the numbers of channels.
        size: height and width of the image.
        kernel: height and width of the kernel.
        stride: the stride along both axes.
        pad: the pad on each side.
    """

    inputs: int
    outputs: int
    size: int
    kernel: int
    stride: int
    pad: int

    @property
    def result(self) -> int:
        """The height, and width, of the output."""
        return (self.size + 2 * self.pad - self.kernel) // self.stride + 1

    @property
    def product(self) -> tuple[int, int, int]:
        """(rows, columns, depth) of the matrix product that has the convolution's work."""
        return self.result**2, self.outputs, self.kernel**2 * self.inputs

    @property
    def gflop(self) -> float:
        """The convolution's floating-point operations, in 1e9."""
        rows, columns, depth = self.product
        return 2e-9 * rows * columns * depth

    def __str__(self) -> str:
        window = f"{self.kernel}x{self.kernel}/{self.stride}"
        return f"{self.inputs} -> {self.outputs} {window} on {self.size}x{self.size}"


@dataclass(frozen=True)
class Row:
    """The measured rates of a convolution.

    Attributes:
        shape: the convolution's shape, as text.
        times: how often the network has the convolution.
        gflop: the convolution's floating-point operations, in 1e9.
        product, convolution, onednn: the rates, in GFLOP/s, of Eigen's matrix product, of VTensor's
            convolution on Eigen, and of oneDNN's convolution.
        ratio: the rate of VTensor's convolution on Eigen divided by the product's; the median over
            rounds.
    """

    shape: str
    times: int
    gflop: float
    product: float
    convolution: float
    onednn: float
    ratio: float


def resnet50() -> Counter[Shape]:
    """Return the shapes of ResNet-50's convolutions, with the number of convolutions of each."""
    graph = load_onnx(light_model("resnet50"))
    counts: Counter[Shape] = Counter()
    for node in graph.nodes.values():
        x, *rest = (graph.values[name].dims for name in node.inputs)
        if rest and {"O", "I", "h", "w"} == set(rest[0]):
            op: Any = node.op
            sizes = (x["H"], rest[0]["h"], op.strides[0], op.pads[0])
            counts[Shape(x["C"], rest[0]["O"], *sizes)] += 1
    return counts


class Timed:
    """A step on memory of its own, with random inputs; a call runs it and returns its seconds.

    Args:
        step: the step.
        threads: the number of threads of a run.
    """

    def __init__(self, step: Any, threads: int) -> None:
        self.step, self.threads = step, threads
        rng = np.random.default_rng(0)
        slots = _replay.describe(step)["slots"]
        self.memory = [Buffer.allocate(size).memory for _, size, _ in slots]
        for buffer in self.memory:
            buffer.view(np.float32)[:] = rng.random(buffer.size // 4, np.float32)

    def __call__(self) -> float:
        """Run the step and return its seconds."""
        begin = time.perf_counter()
        _replay.execute(self.step, self.memory, self.threads)
        return time.perf_counter() - begin


def contestants(shape: Shape, threads: int) -> list[Timed]:
    """Return three steps to time for a shape.

    They are Eigen's matrix product, VTensor's convolution on Eigen, and oneDNN's convolution.
    """
    kernels = eigen.load()
    steps = (
        kernels.product("f32", [], [], [], *shape.product),
        kernels.convolution("f32", window(shape), 1, shape.outputs),
        reference(shape),
    )
    return [Timed(step, threads) for step in steps]


def window(shape: Shape) -> Window:
    """Return a shape as the window that Eigen's kernels take."""
    before, after, kernel, stride = shape.size, shape.result, shape.kernel, shape.stride
    return (
        1,
        shape.inputs,
        (1, before, before),
        (1, after, after),
        (1, kernel, kernel),
        (1, stride, stride),
        (1, 1, 1),
        (0, shape.pad, shape.pad),
    )


def reference(shape: Shape) -> Any:
    """Return oneDNN's convolution of a shape as a step, in the layouts that oneDNN prefers."""
    dnnl = onednn.load()
    src = dnnl.Desc.any((1, shape.inputs, shape.size, shape.size), "f32")
    weights = dnnl.Desc.any((shape.outputs, shape.inputs, shape.kernel, shape.kernel), "f32")
    dst = dnnl.Desc.any((1, shape.outputs, shape.result, shape.result), "f32")
    pairs = [(number, number) for number in (shape.stride, 1, shape.pad, shape.pad)]
    return dnnl.convolution(src, weights, None, dst, *pairs)


def measured(shape: Shape, times: int, threads: int, rounds: int) -> Row:
    """Time the three steps of a shape in random order, and return their row.

    Args:
        shape: the shape of a convolution.
        times: how often the network has this convolution.
        threads: the number of threads of a run.
        rounds: the number of rounds; each step runs once in a round.
    """
    three = contestants(shape, threads)
    for step in three:
        step()
    order = random.Random(0)
    turns = []
    for _ in range(rounds):
        seconds = {step: step() for step in order.sample(three, 3)}
        turns.append([seconds[step] for step in three])
    product, ours, theirs = (shape.gflop / min(seconds) for seconds in zip(*turns, strict=True))
    ratio = statistics.median(turn[0] / turn[1] for turn in turns)
    return Row(str(shape), times, shape.gflop, product, ours, theirs, ratio)


def measure(threads: int, rounds: int) -> Iterator[Row]:
    """Yield a row for each distinct convolution of ResNet-50, measured in this process."""
    with progress("ResNet-50") as advance:
        for shape, times in resnet50().items():
            advance(str(shape))
            yield Executor.of(threads).run(
                lambda shape=shape, times=times: measured(shape, times, threads, rounds)  # type: ignore[misc]
            )


def total(rows: Iterable[Row]) -> float:
    """Return the time of all matrix products, divided by that of all convolutions of the network.

    Times are those on Eigen, weighted by how often the network has the convolution.

    >>> slow, fast = Row("a", 1, 2.0, 1.0, 0.5, 1.0, 0.5), Row("b", 2, 1.0, 1.0, 1.0, 1.0, 1.0)
    >>> round(total([slow, fast]), 3)
    0.667
    """
    work = [(row.times * row.gflop / row.product, row.ratio) for row in rows]
    return sum(seconds for seconds, _ in work) / sum(seconds / ratio for seconds, ratio in work)


def print_table(cap: str, rows: list[Row]) -> None:
    """Print a table with a line for each shape, and the ratio over all."""
    headings = ("shape", "times", "product", "convolution", "oneDNN", "of product")
    worst, all_of_them = min(row.ratio for row in rows), total(rows)
    table = Table(title=f"GFLOP/s under {cap}", caption_justify="left")
    table.caption = f"in all {all_of_them:.2f} of the product's rate, at worst {worst:.2f}"
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "shape" else "right")
    for row in rows:
        rates = (f"{rate:.1f}" for rate in (row.product, row.convolution, row.onednn))
        style = "red" if row.ratio < MARK else None
        table.add_row(row.shape, str(row.times), *rates, f"{row.ratio:.2f}", style=style)
    Console(width=100).print(table)


def under(cap: str, options: argparse.Namespace) -> list[Row]:
    """Return the rows under a cap on the instruction set, measured in a new process."""
    numbers = ["--threads", str(options.threads), "--rounds", str(options.rounds)]
    command = [
        sys.executable,
        "-m",
        "eval.kernels.eigen_convolution",
        "--isa",
        cap,
        "--json",
        *numbers,
    ]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [Row(**row) for row in json.loads(answer)[cap]]


def main() -> int:
    """Measure and print; return 1 if the ratio of a shape is below ``MARK``, else 0.

    With ``--json`` it is always 0.
    """
    parser = argparse.ArgumentParser(description="Convolution on Eigen, beside its own product.")
    parser.add_argument("--isa", choices=CAPS, help="one cap only; default: each")
    parser.add_argument("--threads", type=int, default=1, help="kernel threads; default: 1")
    parser.add_argument("--rounds", type=int, default=31, help="rounds a shape; default: 31")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.isa:
        limit_isa(options.isa)
        rows_of = {options.isa: list(measure(options.threads, options.rounds))}
    else:
        rows_of = {cap: under(cap, options) for cap in CAPS}
    if options.json:
        print(json.dumps({cap: [asdict(row) for row in rows] for cap, rows in rows_of.items()}))
        return 0
    for cap, rows in rows_of.items():
        print_table(cap, rows)
    return int(any(row.ratio < MARK for rows in rows_of.values() for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
