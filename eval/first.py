"""One engine from the start of its process to its first answer: run by file, with nothing else.

``python -P eval/first.py ENGINE MODEL FEEDS THREADS`` prints the seconds of processor time, of all
threads, that had passed when the engine was imported, had loaded the model, and had answered; and
the most memory that the process has had.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any


def cpu_s() -> float:
    """Processor time of this process since it began."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_kib() -> int:
    """The most memory that this process has had; ``getrusage`` counts that of who started it."""
    with open("/proc/self/status") as status:  # noqa: PTH123  # pathlib would be imported
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def vtensor(model: str, feeds: dict[str, Any], threads: int) -> float:
    """VTensor; each of these returns when the engine was imported and when it had loaded."""
    from vtensor import Session

    imported.append(cpu_s())
    session = Session(model, threads=threads)
    loaded.append(cpu_s())
    session.run(None, feeds)
    return cpu_s()


def onnxruntime(model: str, feeds: dict[str, Any], threads: int) -> float:
    """ONNX Runtime."""
    import onnxruntime as engine

    imported.append(cpu_s())
    options = engine.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, threads
    session = engine.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    loaded.append(cpu_s())
    session.run(None, feeds)
    return cpu_s()


def openvino(model: str, feeds: dict[str, Any], threads: int) -> float:
    """OpenVINO."""
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
    request.infer(feeds)
    return cpu_s()


imported, loaded = list[float](), list[float]()
ENGINES = {"vtensor": vtensor, "onnxruntime": onnxruntime, "openvino": openvino}


def main() -> None:
    """Run the engine that the command line names; then end at once, for ending is not measured."""
    engine, model, file, threads = sys.argv[1:]
    import numpy as np

    with np.load(file) as kept:
        feeds = dict(kept)
    answered = ENGINES[engine](model, feeds, int(threads))
    row = {"import_s": imported[0], "load_s": loaded[0], "cpu_s": answered, "peak_kib": peak_kib()}
    print(json.dumps(row), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
