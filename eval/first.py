"""One engine from the start of its process to its first answer: run by file, with nothing else.

``python -P eval/first.py ENGINE MODEL FEEDS THREADS`` prints the seconds of processor time, of all
threads, that had passed when the engine was imported, had loaded the model, and had answered; and
the most memory that the process has had. With ``RUNS SECONDS`` behind these it goes on, and prints
what memory it has after the first answer, after so many runs, and after so many seconds of runs.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

#: Runs the model once.
Run = Callable[[], object]

#: Work beside runs ends meanwhile.
RESTS_S = 0.5


def cpu_s() -> float:
    """Return the processor time of this process since its start, in seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def kib(what: str) -> int:
    """Return a figure of ``/proc/self/status`` in KiB; ``getrusage`` would include the parent's
    peak.
    """
    with open("/proc/self/status") as status:  # noqa: PTH123  # pathlib would be imported
        return next(int(line.split()[1]) for line in status if line.startswith(f"{what}:"))


def vtensor(model: str, feeds: dict[str, Any], threads: int) -> Run:
    """Load a model in VTensor, note when it was imported and when it was loaded, and return its
    run.
    """
    from vtensor import Session

    imported.append(cpu_s())
    session = Session(model, threads=threads)
    loaded.append(cpu_s())
    return lambda: session.run(None, feeds)


def onnxruntime(model: str, feeds: dict[str, Any], threads: int) -> Run:
    """Load a model in ONNX Runtime, note the same times, and return its run."""
    import onnxruntime as engine

    imported.append(cpu_s())
    options = engine.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, threads
    session = engine.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    loaded.append(cpu_s())
    return lambda: session.run(None, feeds)


def openvino(model: str, feeds: dict[str, Any], threads: int) -> Run:
    """Load a model in OpenVINO, note the same times, and return its run."""
    import openvino as engine

    imported.append(cpu_s())
    core = engine.Core()
    read = core.read_model(model)
    if read.is_dynamic():
        read.reshape({name: list(array.shape) for name, array in feeds.items()})
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = core.compile_model(read, "CPU", settings).create_infer_request()
    loaded.append(cpu_s())
    return lambda: request.infer(feeds)


imported, loaded = list[float](), list[float]()
ENGINES = {"vtensor": vtensor, "onnxruntime": onnxruntime, "openvino": openvino}


def main() -> None:
    """Run the engine of the command line and print its figures; the end of the process is not
    measured.
    """
    engine, model, file, threads, *further = sys.argv[1:]
    import numpy as np

    with np.load(file) as kept:
        feeds = dict(kept)
    run = ENGINES[engine](model, feeds, int(threads))
    run()
    answered = time.monotonic()  # of the machine, so that who began the process can reckon
    row = {"import_s": imported[0], "load_s": loaded[0], "cpu_s": cpu_s(), "peak_kib": kib("VmHWM")}
    row["answered"] = answered
    if further:
        row |= used(run, int(further[0]), float(further[1]))
    print(json.dumps(row), flush=True)


def used(run: Run, runs: int, seconds: float) -> dict[str, int]:
    """Return the memory of the process after one run, after more runs and after a pause, and its
    peak.
    """
    memory = {"first_kib": kib("VmRSS")}
    for _ in range(runs):
        run()
    memory["runs_kib"] = kib("VmRSS")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        run()
    time.sleep(RESTS_S)
    run()
    return memory | {"used_kib": kib("VmRSS"), "anon_kib": kib("RssAnon"), "most_kib": kib("VmHWM")}


if __name__ == "__main__":
    main()
