"""Runs of a part of a model: in VTensor, in ONNX Runtime, and in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import ModelProto

from vtensor.benchmark.onnxruntime import OnnxRuntime
from vtensor.commands.comparison.parts import in_float64
from vtensor.commands.shared import LoadOptions, graph_of, overriding
from vtensor.errors import PeerError
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass
from vtensor.report import plan_dict
from vtensor.storage.inputs import Array

Feeds = Mapping[str, Array]

#: The entry of ONNX Runtime's options that names the folder of external data.
_DATA_FOLDER = "session.model_external_initializers_file_folder_path"


@dataclass(frozen=True)
class Engines:
    """Both engines with their options.

    Attributes:
        options: the options of VTensor's sessions.
        limits: the options for loading a model; the folder of external data is set.
        threads: the number of threads of both engines; None is each engine's default.
    """

    options: Mapping[str, Any]
    limits: LoadOptions
    threads: int | None = None

    def ours(self, part: ModelProto, feeds: Feeds) -> tuple[list[Any], list[dict[str, Any]]]:
        """Return VTensor's outputs of a part of a model, and the steps of its plan as data.

        Raises:
            VTensorError: the part cannot be read, planned or run.
        """
        from vtensor.frontends.onnx import Model
        from vtensor.runtime.session import Session

        mine = _needed(part, feeds)
        loaded = overriding(Model(part.SerializeToString(), **self.limits._asdict()), mine)
        graph = graph_of(loaded, {name: array.shape for name, array in mine.items()}, mine)
        options: dict[str, Any] = {"deterministic": True, "cache_dir": False, **self.options}
        memory = self.limits.max_bytes
        with Session(graph, threads=self.threads, max_bytes=memory, **options) as session:
            names = [port.name for port in session.inputs]
            results = session.run(None, {name: mine[name] for name in names})
            return results, plan_dict(session, "part")["steps"]

    def theirs(self, part: ModelProto, feeds: Feeds) -> list[Any]:
        """Return ONNX Runtime's outputs of a part of a model.

        Raises:
            PeerError: it is not installed, or cannot run the part.
        """
        if absent := OnnxRuntime.absent():
            raise PeerError(absent)
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = self.threads or 0
        options.add_session_config_entry(_DATA_FOLDER, str(self.limits.external_data_root))
        try:
            session = onnxruntime.InferenceSession(
                part.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            return list(session.run(None, _needed(part, feeds)))
        except Exception as error:  # it raises classes of its own
            pass_signals(error)
            raise PeerError(f"onnxruntime: {error}") from error


def exact(part: ModelProto, feeds: Feeds) -> tuple[list[Any], str] | None:
    """Return a part's outputs in float64, and the evaluator's name; None if none can run it.

    ONNX's reference evaluator is the first choice, since no code of either engine is in it;
    VTensor's NumPy definitions are the second.

    Args:
        part: the part; its constants must be in the model itself.
        feeds: its inputs.
    """
    wide = in_float64(part)
    doubles = {
        name: array.astype(np.float64) if array.dtype.kind in "fV" else array
        for name, array in _needed(part, feeds).items()
    }
    for evaluate, name in (
        (_by_reference, "onnx.reference"),
        (_by_definitions, "VTensor's NumPy definitions"),
    ):
        try:
            with np.errstate(all="ignore"):
                return evaluate(wide, doubles), name
        except Exception as error:  # an evaluator may lack an operator, or f64 of it
            pass_signals(error)
    return None


def _by_reference(model: ModelProto, feeds: Feeds) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(model).run(None, dict(feeds)))


def _by_definitions(model: ModelProto, feeds: Feeds) -> list[Any]:
    results, _ = Engines(
        {"libraries": ["numpy"], "optimize": "none"}, LoadOptions(False, None, None)
    ).ours(model, feeds)
    return results


def _needed(part: ModelProto, feeds: Feeds) -> dict[str, Array]:
    return {port.name: feeds[port.name] for port in part.graph.input if port.name in feeds}
