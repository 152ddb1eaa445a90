"""What the process's memory does around sessions: ``python -m tests.runtime.resident CASE``.

A program of its own, for what other tests leave behind would count. It prints JSON, in bytes.
"""

from __future__ import annotations

import ctypes
import gc
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from onnx import ModelProto

from eval.networks import build
from libdesc.onednn import _onednn as dnn
from ptensor.buffer import TensorStorage
from tests.frontends.support import f32, model
from vtensor import Session
from vtensor.benchmark.peer import Array
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.planning.symbolic_plan import SymbolicPlan
from vtensor.runtime.recording.workspace import Memory

Numbers = dict[str, int]

#: The header of a mapping in /proc/self/smaps: its permissions and its file.
MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ (\S+) \S+ \S+ \S+ *(.*)")


def resident() -> int:
    """Return the process's resident bytes, without free memory of malloc.

    Unmodified pages of libraries do not count. Linux maps them 4 KiB or 2 MiB at a time, which
    depends on how the file entered the page cache: 20 MB of oneDNN just after its installation,
    else 4.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    sizes, code, key = Counter[tuple[str, bool]](), set[str](), ("", True)
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if mapping := MAPPING.fullmatch(line):
            flags, file = mapping.groups()
            key = file, "w" in flags
            if file and "x" in flags:
                code.add(file)
        elif line.startswith("Rss:"):
            sizes[key] += int(line.split()[1]) << 10
    return sum(size for (file, own), size in sizes.items() if own or file not in code)


def status_bytes(name: str) -> int:
    """Return a field of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [kib] = [int(line.split()[1]) for line in lines if line.startswith(f"{name}:")]
    return kib << 10


def tiny(threads: int = 1) -> Session:
    """Return a session of a convolution."""
    text = "g (float[1, 16, 8, 8] x) => (float[1, 16, a, b] y) { c = Conv(x, w) y = Relu(c) }"
    return Session(model(text, w=f32(16, 16, 3, 3)), threads=threads, cache_dir=None)


def network(name: str) -> Numbers:
    """Measure from before a session to after its runs; then with a copy of its weights as well.

    It is not the first of its network: the code that oneDNN generates stays in the process's cache.
    """
    graph = build(name)
    image = f32(*graph.values["image"].dims.values())
    with Session(graph, threads=1) as session:
        session.run(None, {"image": image})
    before = resident()
    with Session(graph, threads=1) as session:
        found = [session.run(None, {"image": image}) for _ in range(3)]
        grown, peak = resident() - before, session.memory.peak
        found.append([np.ones(session.memory.weights, np.uint8)])
        return {"grown": grown, "peak": peak, "with a copy": resident() - before}


def runs() -> Numbers:
    """Measure ten thousand runs after a thousand; then some whose results are kept."""
    feeds = {"x": f32(1, 16, 8, 8)}
    with tiny() as session:
        for _ in range(1_000):
            session.run(None, feeds)
        before = resident()
        for _ in range(10_000):
            session.run(None, feeds)
        grown = resident() - before
        kept = [session.run(None, feeds) for _ in range(1_000)]
        return {"grown": grown, "kept": resident() - before, "results": len(kept)}


def shapes() -> Numbers:
    """Measure two hundred shapes of one model, from the hundredth to the last.

    oneDNN keeps no primitives: their generated code differs from processor to processor. Sizes come
    nearer to each other, so that the results of the plans that are kept are as large at both times.
    """
    dnn.set_cache_capacity(0)
    text = "g (float[n, 64] x) => (float[n, 2048] y) { a = MatMul(x, w) y = Relu(a) }"
    with Session(model(text, w=f32(64, 2048)), threads=1) as session:
        seen, before = list[Memory](), 0
        sizes = chain.from_iterable(zip(range(200, 100, -1), range(1, 101), strict=True))
        for index, size in enumerate(sizes, 1):
            session.run(None, {"x": f32(size, 64)})
            seen.append(session.memory)
            if index == 100:
                before = resident()
        return {
            "grown": resident() - before,
            "weights": max(memory.weights for memory in seen),
            "arena": max(memory.arena for memory in seen),
            "largest": max(memory.planned for memory in seen),
            "plans": len(session._runner.open()),
        }


#: A function after a convolution, as ONNX's text writes it: from "c" to "r", with {0} for a place.
AFTER = {
    "Relu": "r{0} = Relu(c{0})",
    "Clip": "r{0} = Clip(c{0}, low, high)",
    "HardSwish": "r{0} = HardSwish(c{0})",
    "SiLU": "s{0} = Sigmoid(c{0}) r{0} = Mul(c{0}, s{0})",
    "HardSigmoid": "r{0} = HardSigmoid(c{0})",
    "Tanh": "r{0} = Tanh(c{0})",
}


def convolutions(after: str, layers: int) -> ModelProto:
    """Return convolutions of images of any size, each with a function after it."""
    lines, constants, channels = [], dict[str, Array](), 3
    for place in range(layers):
        outputs = 16 + 8 * (place % 3)
        constants[f"w{place}"] = f32(outputs, channels, 3, 3) / 50
        given = f"r{place - 1}" if place else "x"
        stride = 2 if place % 4 == 1 else 1
        attributes = f"pads = [1, 1, 1, 1], strides = [{stride}, {stride}]"
        lines += [f"c{place} = Conv<{attributes}>({given}, w{place})", AFTER[after].format(place)]
        channels = outputs
    if after == "Clip":
        constants |= {"low": np.array(0, np.float32), "high": np.array(6, np.float32)}
    last = f"r{layers - 1}"
    ports = f"(float[1, 3, h, w] x) => (float[1, {channels}, a, b] {last})"
    return model(f"g {ports} {{ {chr(10).join(lines)} }}", 17, **constants)


def images(seed: int, low: int, high: int) -> Iterator[Array]:
    """Yield images of 3 channels in sizes that are drawn at random."""
    rng = np.random.default_rng(seed)
    while True:
        yield np.zeros((1, 3, *rng.integers(low, high, 2)), np.float32)


def reshaped(after: str, layers: str, early: str, late: str, optimize: str = "all") -> Numbers:
    """Measure a session of ``convolutions`` in new sizes: after some of them, and after more.

    oneDNN keeps few primitives, and the process few of those that leave code behind: else it takes
    a thousand sizes until each new one replaces an old one.
    """
    if int(late) < 1000:
        dnn.set_kept_code_limit(8)
        dnn.set_cache_capacity(64)
    with tiny():
        pass
    before = resident()
    found = dict[str, int]()
    with Session(convolutions(after, int(layers)), threads=1, optimize=optimize) as session:
        for count, image in enumerate(images(0, 16, 96), 1):
            session.run(None, {"x": image})
            if count in (int(early), int(late)):
                found["early" if count == int(early) else "late"] = resident() - before
            if count == int(late):
                break
        found["plans"] = _plan_objects()
    return found | {"closed": resident() - before, "before": before, "left": _plan_objects()}


def _plan_objects() -> int:
    """Count the plans, symbolic plans and storages of values that are alive."""
    gc.collect()
    kinds = Plan, SymbolicPlan, TensorStorage
    return sum(isinstance(found, kinds) for found in gc.get_objects())


def opened(path: str) -> Numbers:
    """Measure three sessions of a file that never run, once no more pages come."""
    with tiny(threads=2):
        before = resident()
    sessions, grown = [], list[int]()
    for _ in range(3):
        sessions.append(Session(path, threads=2, cache_dir=None))
        last = -1
        while last != (last := resident()):
            time.sleep(0.3)
        grown.append(last - before)
    return {"one": grown[0], "all": grown[-1]}


def loading(path: str) -> Numbers:
    """Measure the growth by a file's session and its first run, and the peak during both.

    The peak includes pages of libraries, since the system counts it for the whole process.
    """
    with tiny():
        before = resident()
    Path("/proc/self/clear_refs").write_text("5")  # the most begins anew
    all_before = status_bytes("VmHWM")
    with Session(path, threads=1) as session:
        [port] = session.inputs
        session.run(None, {port.name: np.ones([size or 1 for size in port.shape], "f4")})
        peak = status_bytes("VmHWM") - all_before
        return {"grown": resident() - before, "peak": peak}


_ALL: tuple[Callable[..., Numbers], ...] = (runs, shapes, loading, opened, reshaped)
CASES = {case.__name__: case for case in _ALL}

if __name__ == "__main__":
    case, *more = sys.argv[1:]
    print(json.dumps(CASES[case](*more) if case in CASES else network(case)))
