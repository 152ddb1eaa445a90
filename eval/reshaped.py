"""A program: one engine on shapes that it has not seen before; ``eval/shapes.py`` starts it.

``python -m eval.reshaped ENGINE MODEL FEEDS THREADS ASKED ANSWERS``: ASKED is JSON, ``{"axes":
{input: {axis: name}}, "sizes": [{name: size}, ...], "runs": count, "used_s": seconds}``. The engine
runs on the inputs as they are, ``runs`` times and for ``used_s`` seconds. Then it runs each of
``sizes`` for the first time (*new*) and a few times more (*again*), then each once more, the last
one first (*back*). The program prints seconds as JSON, null for sizes that the engine refuses, and
saves the outputs of the *new* runs in the file ANSWERS.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from vtensor.benchmark.peer import Array

#: The number of runs of a shape after its first.
AGAIN = 3

Feeds = Mapping[str, Array]
Run = Callable[[Feeds], "list[Array]"]


def vtensor(model: str, threads: int) -> Run:
    """Load a model in VTensor, and return a function from inputs to outputs."""
    from vtensor import Session

    session = Session(model, threads=threads)
    return lambda feeds: session.run(None, feeds)


def onnxruntime(model: str, threads: int) -> Run:
    """Load a model in ONNX Runtime, and return a function from inputs to outputs."""
    import onnxruntime as engine

    options = engine.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, threads
    session = engine.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda feeds: list(session.run(None, dict(feeds)))


def openvino(model: str, threads: int) -> Run:
    """Compile a model in OpenVINO for all sizes, and return a function from inputs to outputs."""
    import openvino as engine

    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
    }
    core = engine.Core()
    compiled = core.compile_model(core.read_model(model), "CPU", settings)
    request = compiled.create_infer_request()

    def run(feeds: Feeds) -> list[Array]:
        results = request.infer(dict(feeds), share_inputs=True, share_outputs=True)
        return [results[port] for port in compiled.outputs]

    return run


ENGINES = {"vtensor": vtensor, "onnxruntime": onnxruntime, "openvino": openvino}


def resized(feeds: Feeds, axes: Mapping[str, Mapping[str, str]], sizes: Mapping[str, int]) -> Feeds:
    """Return inputs of other sizes: arrays are cut off, or repeated from their beginning.

    Args:
        feeds: the inputs, by name.
        axes: the names of sizes, by input and by the number of the axis.
        sizes: the new sizes by name; other sizes stay.

    >>> resized({"x": np.arange(3)}, {"x": {"0": "n"}}, {"n": 5})["x"].tolist()
    [0, 1, 2, 0, 1]
    """
    result = dict(feeds)
    for name, named in axes.items():
        array = result[name]
        for axis, symbol in named.items():
            places = np.arange(sizes.get(symbol, array.shape[int(axis)])) % array.shape[int(axis)]
            array = array.take(places, int(axis))
        result[name] = np.ascontiguousarray(array)
    return result


def through(run: Run, given: list[Feeds]) -> tuple[dict[str, Any], list[list[Array]]]:
    """Run an engine on inputs of several shapes, first in order, then backwards.

    Args:
        run: runs the engine.
        given: the inputs of each shape.

    Returns:
        The seconds for each shape: of its first run (``new_s``), the median of the next ones
        (``again_s``), and on the way back (``back_s``); None if the engine refuses the shape. And
        the outputs of the first runs, empty for a shape that is refused.
    """
    new, again, back = (list[float | None]() for _ in range(3))
    answers = list[list[Array]]()

    def timed(feeds: Feeds) -> float:
        begin = perf_counter()
        outputs[:] = run(feeds)
        return perf_counter() - begin

    outputs: list[Array] = []
    for feeds in given:
        try:
            new.append(timed(feeds))
        except Exception as error:  # engines raise errors of any type for sizes that they refuse
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            new.append(None)
            answers.append([])
            again.append(None)
            continue
        answers.append([np.array(array) for array in outputs])
        again.append(median(timed(feeds) for _ in range(AGAIN)))
    for feeds, known in zip(reversed(given), reversed(new), strict=True):
        back.append(None if known is None else timed(feeds))
    return {"new_s": new, "again_s": again, "back_s": back[::-1]}, answers


def main() -> None:
    """Run the engine on the shapes that the command line names."""
    engine, model, file, threads, asked, to = sys.argv[1:]
    about = json.loads(asked)
    with np.load(file) as kept:
        feeds = dict(kept)
    feeds_of = [resized(feeds, about["axes"], sizes) for sizes in about["sizes"]]
    begin = perf_counter()
    run = ENGINES[engine](model, int(threads))
    for _ in range(about["runs"]):  # ``eval/start.py`` measures the very first run
        run(feeds)
    ready_s = perf_counter() - begin
    while perf_counter() - begin - ready_s < about["used_s"]:
        run(feeds)
    seconds, answers = through(run, feeds_of)
    kept_answers: dict[str, Any] = {
        f"{at}.{number}": array
        for at, arrays in enumerate(answers)
        for number, array in enumerate(arrays)
    }
    np.savez(Path(to), **kept_answers)
    print(json.dumps({"ready_s": ready_s, **seconds}), flush=True)


if __name__ == "__main__":
    main()
