"""The engines that run a case: VTensor, and the peers that are installed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from onnx import ModelProto

from tests.onnx_suite.cases import Case, Value
from vtensor import Session
from vtensor.errors import (
    EdgesNeeded,
    NativeError,
    SegmentsNeededError,
    UnsoundPlanError,
    UnsupportedOperatorError,
    ValuesNeededError,
    VTensorError,
)
from vtensor.frontends.onnx import Model

Run = Callable[[ModelProto, Mapping[str, Value]], Sequence[Value]]

#: Errors of ours that say that something is wrong with us, not that a case is not supported.
FAULTS = (NativeError, UnsoundPlanError)


@dataclass(frozen=True)
class Outcome:
    """What became of a case: ``passed``, ``unsupported`` or ``failed``, and why."""

    status: str
    reason: str = ""


def _vtensor(**options: Any) -> Run:
    def run(model: ModelProto, feeds: Mapping[str, Value]) -> Sequence[Value]:
        with Session(model, threads=1, **options) as session:
            return session.run(None, feeds)

    return run


#: VTensor with operators of its own alone.
vtensor = _vtensor(reference=False)
#: VTensor with ONNX's evaluator for what VTensor has no operator for.
vtensor_reference = _vtensor()
#: VTensor by the definitions of its operators.
vtensor_numpy = _vtensor(libraries=["numpy"], reference=False)


def at_load(case: Case) -> bool:
    """Return whether all outputs of a case that passes are constants once it is loaded.

    Then no library ran: ONNX's reference evaluator, or the frontend, computed them.
    """
    feeds, _ = next(case.data)
    known = dict[str, Value]()
    try:
        model = Model(case.model, reference=False)
        while True:
            try:
                graph = model.graph({name: np.shape(feeds[name]) for name in model.inputs}, known)
            except ValuesNeededError as error:
                known |= {name: feeds[name] for name in error.names}
            else:
                return graph.constants.keys() >= {*graph.outputs.values()}
    except (EdgesNeeded, SegmentsNeededError):
        return False  # only a run knows sizes, or Python steps of a run compute the outputs


def onnx_reference(model: ModelProto, feeds: Mapping[str, Value]) -> Sequence[Value]:
    """Return the answer of ONNX's own evaluator."""
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(model).run(None, dict(feeds)))


def onnx_runtime(model: ModelProto, feeds: Mapping[str, Value]) -> Sequence[Value]:
    """Return ONNX Runtime's answer."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    content, providers = model.SerializeToString(), ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(content, options, providers=providers)
    answers: Sequence[Value] = session.run(None, dict(feeds))
    return answers


def openvino(model: ModelProto, feeds: Mapping[str, Value]) -> Sequence[Value]:
    """Return OpenVINO's answer, in f32 as the others."""
    import openvino

    core = openvino.Core()
    read = core.read_model(model.SerializeToString())
    compiled = core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    answers = compiled(dict(feeds))
    return [answers[port] for port in compiled.outputs]


#: Peers by the module that must be there.
PEERS: dict[str, tuple[str, Run]] = {
    "ONNX Runtime": ("onnxruntime", onnx_runtime),
    "OpenVINO": ("openvino", openvino),
    "onnx.reference": ("onnx.reference", onnx_reference),
}


def peers() -> tuple[dict[str, Run], list[str]]:
    """Return the peers that are installed, and the names of the other peers."""
    there = {name: run for name, (module, run) in PEERS.items() if find_spec(module)}
    return there, [name for name in PEERS if name not in there]


#: The suite's values are rounded to f16 behind each operation there; on processors that compute in
#: it kernels keep f32 in between, and are closer to the exact ones.
_IN_F16 = ("test_attention_4d_fp16", "test_attention_4d_causal_fp16")


def judge(case: Case, run: Run = vtensor) -> Outcome:
    """Run a case and return its outcome; only an interrupt is raised."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            for feeds, wanted in case.data:
                rtol = max(case.rtol, 2**-9) if case.name.startswith(_IN_F16) else case.rtol
                fault = difference(list(run(case.model, feeds)), wanted, rtol, case.atol)
                if fault:
                    return Outcome("failed", fault)
        except FAULTS as error:
            return Outcome("failed", f"{type(error).__name__}: {_first(error)}")
        except VTensorError as error:
            return Outcome("unsupported", refusal(error))
        except Exception as error:  # untyped: whatever a fault of ours, or a peer, raises
            return Outcome("failed", f"{type(error).__name__}: {_first(error)}")
    return Outcome("passed")


def _first(error: Exception) -> str:
    return (str(error).strip() or "no text").splitlines()[0][:200]


def refusal(error: VTensorError) -> str:
    """Return why a case is not supported, without the names of its nodes and values."""
    lines = [line.strip() for line in str(error).splitlines()]
    if isinstance(error, UnsupportedOperatorError):
        rows = [line.partition(" : ") for line in lines if " : " in line]
        missing = "does not have" in str(error)
        texts = [f"no {row[0]}" if missing and " x, " in row[2] else row[2] for row in rows]
        return "; ".join(sorted(set(texts)))
    return f"{type(error).__name__}: {lines[0].partition(': ')[2] or lines[0]}"


def difference(ours: Sequence[Value], wanted: Sequence[Value], rtol: float, atol: float) -> str:
    """Return what is wrong with some outputs; empty when nothing is."""
    if len(ours) != len(wanted):
        return f"{len(ours)} outputs, {len(wanted)} wanted"
    for index, (mine, theirs) in enumerate(zip(ours, wanted, strict=True)):
        if isinstance(theirs, (list, tuple)):
            fault = difference(mine, theirs, rtol, atol) if isinstance(mine, list) else "no list"
        elif theirs is None or mine is None:
            fault = "" if mine is theirs else "one of the two is None"
        else:
            fault = _array_difference(np.asarray(mine), np.asarray(theirs), rtol, atol)
        if fault:
            return f"output {index}: {fault}"
    return ""


def _array_difference(
    mine: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any], rtol: float, atol: float
) -> str:
    """Compare as the suite does (``onnx.backend.test.runner``)."""
    if mine.shape != theirs.shape:
        return f"shape {mine.shape}, {theirs.shape} wanted"
    if theirs.dtype.kind in "OUS":
        return "" if (mine == theirs).all() else "other texts"
    if mine.dtype != theirs.dtype:
        return f"element type {mine.dtype}, {theirs.dtype} wanted"
    if theirs.dtype.kind not in "biufc":  # bfloat16 and narrower: NumPy promotes them to nothing
        rtol = max(rtol, 2**-6) if theirs.dtype.name == "bfloat16" else rtol
        mine, theirs = mine.astype(np.float32), theirs.astype(np.float32)
    try:
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol)
    except AssertionError as error:
        rows = [line for line in str(error).splitlines() if "difference" in line or "nan" in line]
        return "; ".join(rows) or "other values"
    return ""
