"""A program: one engine from the start of its process to its first answer.

``python -P eval/first.py ENGINE MODEL FEEDS THREADS`` runs this file alone, without the package
``eval``. It prints, as JSON, the processor time of all threads, in seconds since the process began,
when the engine was imported, when the model was loaded and when the first run had ended; and the
peak memory. With ``RUNS SECONDS`` as further arguments it goes on, and also prints the memory of
the process after the first run, after RUNS further ones, and after SECONDS more of runs.
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

#: Pause in seconds, in which background work ends.
RESTS_S = 0.5


def cpu_s() -> float:
    """Return the processor time of this process since its start, in seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def kib(what: str) -> int:
    """Return an entry of ``/proc/self/status``, such as ``VmHWM``, in KiB.

    ``getrusage`` would include the parent's peak.
    """
    with open("/proc/self/status") as status:  # noqa: PTH123  # pathlib would be imported
        return next(int(line.split()[1]) for line in status if line.startswith(f"{what}:"))


def vtensor(model: str, feeds: dict[str, Any], threads: int) -> Run:
    """Load a model in VTensor, and return a function that runs it once.

    The CPU times after the import and after loading are appended to ``imported`` and ``loaded``.
    """
    from vtensor import Session

    imported.append(cpu_s())
    session = Session(model, threads=threads)
    loaded.append(cpu_s())
    return lambda: session.run(None, feeds)


def onnxruntime(model: str, feeds: dict[str, Any], threads: int) -> Run:
    """Load a model in ONNX Runtime as ``vtensor`` does, and return a function that runs it once."""
    import onnxruntime as engine

    imported.append(cpu_s())
    options = engine.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, threads
    session = engine.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    loaded.append(cpu_s())
    return lambda: session.run(None, feeds)


def openvino(model: str, feeds: dict[str, Any], threads: int) -> Run:
    """Load a model in OpenVINO as ``vtensor`` does, and return a function that runs it once."""
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
    """Run the engine that the command line names, and print its figures as JSON."""
    engine, model, file, threads, *further = sys.argv[1:]
    import numpy as np

    with np.load(file) as kept:
        feeds = dict(kept)
    run = ENGINES[engine](model, feeds, int(threads))
    run()
    answered = time.monotonic()  # the parent process subtracts the time of the start
    row = {"import_s": imported[0], "load_s": loaded[0], "cpu_s": cpu_s(), "peak_kib": kib("VmHWM")}
    row["answered"] = answered
    if further:
        row |= used(run, int(further[0]), float(further[1]))
    print(json.dumps(row), flush=True)


def used(run: Run, runs: int, seconds: float) -> dict[str, int]:
    """Go on running the model, and return the memory of the process in KiB.

    ``first_kib`` is after the first run, ``runs_kib`` after ``runs`` more, ``used_kib`` after
    ``seconds`` more of runs and a pause, ``anon_kib`` the part of ``used_kib`` that belongs to no
    file, ``most_kib`` the peak.
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
