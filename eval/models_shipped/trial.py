"""``python -m eval.models_shipped.trial FILE``: run a model in both engines, print a row as JSON.

Inputs are random. Nobody says which sizes a model takes, so sizes are tried until ONNX Runtime runs
the model: 1 for the first axis of an input, and the same number for all other open sizes, or for
that of the first input's last axis alone, while all others are 1.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import typer

from eval.store import Row
from vtensor import onnxruntime as ours
from vtensor.benchmark.peer import Array
from vtensor.commands.comparison.difference import difference
from vtensor.commands.comparison.engines import Engines
from vtensor.commands.comparison.parts import Parts
from vtensor.commands.comparison.search import Search
from vtensor.commands.shared import LoadOptions

#: Sizes that are tried for open sizes; elements of integer inputs: None is 0 and 1 at random, the
#: text the size itself, as for lengths.
SIZES = (64, 32, 128, 160, 224, 256, 320, 512, 576, 640, 16, 80, 100, 4, 2, 1)
ELEMENTS = (None, "size", 16000, 1)
#: The largest accepted difference of an output, relative to its largest number; of a model with
#: quantised values, since other sums end in a neighbouring step here and there.
TOLERANCE, QUANTISED = 1e-3, 5e-2
#: Seconds of the timed turns of both engines, of the runs of each before these, of a turn, and of
#: the rest before a turn; the least number of pairs of turns.
SECONDS, WARM_S, TURN_S, REST_S, MIN_PAIRS = 1.0, 0.25, 0.02, 0.02, 4
THREADS = 2

_TYPES = {"float": "f4", "double": "f8", "float16": "f2", "bool": "?", "string": "O"}


def main(file: str) -> None:
    """Print the row of a model: how it ended, why, the difference and the times."""
    print(json.dumps(tried(file)))


def tried(file: str) -> Row:
    """Return the row of a model.

    ``outcome`` is ``runs``, ``differs``, ``nearer`` (it differs, and at the first value on which
    the engines disagree, VTensor is nearer to a run in float64), ``refused`` (by VTensor, with
    ``stage`` and ``reason``), ``random`` if ONNX Runtime does not repeat its own outputs, or
    ``not tried`` if ONNX Runtime cannot run it on any inputs that are tried.
    """
    try:
        theirs = _session(onnxruntime, file)
        feeds, results = _accepted(theirs)
    except Exception as error:  # of any kind: models may be anything
        return {"outcome": "not tried", "reason": _first_line(error)}
    row: Row = {"inputs": {name: list(array.shape) for name, array in feeds.items()}}
    stage = "Session()"
    try:
        mine = _session(ours, file)
        stage = "first run"
        answers = mine.run(None, feeds)
    except Exception as error:
        return {**row, "outcome": "refused", "stage": stage, "reason": _first_line(error)}
    names = [port.name for port in theirs.get_outputs()]
    tolerance = QUANTISED if _is_quantised(file) else TOLERANCE
    found = [difference(a, b, tolerance) for a, b in zip(answers, results, strict=True)]
    again = [difference(a, b, 0.0) for a, b in zip(theirs.run(None, feeds), results, strict=True)]
    if any(one.beyond for one in again):
        return {**row, "outcome": "random"}
    worst = max((one.error for one in found), default=0.0)
    row |= {"outcome": "runs", "error": worst if np.isfinite(worst) else None}
    for name, one in zip(names, found, strict=True):
        if one.beyond:
            judged, nearer = _judged(file, feeds, name, tolerance)
            outcome = "nearer" if nearer == "vtensor" else "differs"
            row |= {"outcome": outcome, "reason": f"{name}: {one}{judged}"}
            break
    return {**row, **_times(lambda: mine.run(None, feeds), lambda: theirs.run(None, feeds))}


def _is_quantised(file: str) -> bool:
    """Return whether an operator of a model has to do with quantised values."""
    nodes = onnx.load(file, load_external_data=False).graph.node
    return any(word in node.op_type for node in nodes for word in ("Quant", "QLinear", "Integer"))


def _judged(
    file: str, feeds: Mapping[str, Array], output: str, tolerance: float
) -> tuple[str, str]:
    """Return a text on the first value on which the engines disagree, and the engine that is nearer
    to float64 there.

    Both are empty if they agree in a model that has no other output.
    """
    path = Path(file)
    engines = Engines({}, LoadOptions(True, None, path.parent), THREADS)
    found = Search(Parts(path), engines, feeds, tolerance, 1.0, lambda _: None).first(output)
    if found is None:
        return "", ""
    nearer = "unknown" if found.judgement is None else found.judgement.nearer
    return f"; first at {found.value}, nearer to float64: {nearer}", nearer


def _session(engine: Any, file: str) -> Any:
    options = engine.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = THREADS, 4
    return engine.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def _accepted(session: Any) -> tuple[dict[str, Array], list[Any]]:
    """Return inputs that ONNX Runtime runs a model on, and the outputs.

    Raises:
        Exception: of any kind; the first one, if it takes none of the inputs that are tried.
    """
    first: Exception | None = None
    for feeds in _feeds(session.get_inputs()):
        try:
            return feeds, session.run(None, feeds)
        except Exception as error:
            first = first or error
    assert first is not None, "some sizes were tried"
    raise first


def _feeds(ports: Sequence[Any]) -> Iterator[dict[str, Array]]:
    is_open = any(not isinstance(size, int) for port in ports for size in port.shape)
    has_integers = any("int" in port.type for port in ports)
    sizes, elements = SIZES if is_open else SIZES[:1], ELEMENTS if has_integers else ELEMENTS[:1]
    for size, alone, element in product(sizes, (False, True)[: 1 + is_open], elements):
        generator, feeds = np.random.default_rng(0), dict[str, Array]()
        for port in ports:
            others = 1 if alone else size
            last = size if port is ports[0] else others
            feeds[port.name] = _array(
                port, _shape(port.shape, others, last), size, element, generator
            )
        yield feeds


def _shape(declared: Sequence[object], others: int, last: int) -> list[int]:
    """Return a shape in which numbers take the place of open sizes; the first one is 1."""
    sizes = [1, *[others] * (len(declared) - 2), last][: len(declared)]
    return [n if isinstance(n, int) else size for n, size in zip(declared, sizes, strict=True)]


def _array(
    port: Any, shape: Sequence[int], size: int, element: object, generator: np.random.Generator
) -> Array:
    name = port.type.removeprefix("tensor(").removesuffix(")")
    kind = np.dtype(_TYPES.get(name, name))
    if kind.kind == "f":
        return generator.standard_normal(shape).astype(kind)
    if kind.kind == "O":
        return np.full(shape, "a", object)
    if element is None or kind.kind == "b":
        return generator.integers(0, 2, shape).astype(kind)
    return np.full(shape, size if element == "size" else element, kind)


def _times(mine: Callable[[], object], theirs: Callable[[], object]) -> Mapping[str, float]:
    """Return medians of both in milliseconds, and of the ratio of neighbouring turns.

    Both take turns of several runs. A turn begins with a rest, in which the other engine's threads
    fall asleep: after a run, these threads spin on the processors for a while.
    """
    engines = (mine, list[float]()), (theirs, list[float]())
    for run, _ in engines:
        _turn(run, WARM_S)
    (_, a), (_, b) = engines
    begin = time.monotonic()
    while time.monotonic() - begin < SECONDS or len(a) < MIN_PAIRS:
        for run, times in engines if len(a) % 2 == 0 else engines[::-1]:
            times.append(_turn(run, TURN_S))
    ratio = statistics.median(x / y for x, y in zip(a, b, strict=True))
    return {"ours_ms": statistics.median(a), "theirs_ms": statistics.median(b), "ratio": ratio}


def _turn(run: Callable[[], object], seconds: float) -> float:
    """Return the median milliseconds of a run, of runs for ``seconds`` after an untimed one."""
    time.sleep(REST_S)
    run()
    times, begin = list[float](), time.monotonic()
    while time.monotonic() - begin < seconds or not times:
        times.append(_ms(run))
    return statistics.median(times)


def _ms(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return (time.perf_counter() - begin) * 1e3


def _first_line(error: BaseException) -> str:
    """Return an error's class and message in one line of at most 300 characters."""
    text = " ".join(str(error).split())
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : |^.*cannot be loaded |model '[^']*' ?", "", text)
    return f"{type(error).__name__}: {text}"[:300]


if __name__ == "__main__":
    typer.run(main)
    sys.stdout.flush()
