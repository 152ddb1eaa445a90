"""Options, providers and profiling."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.onnxruntime.models import TINY, X
from vtensor import onnxruntime as ours
from vtensor.onnxruntime import notes

DEFAULTS = {
    "enable_cpu_mem_arena": True,
    "enable_mem_pattern": True,
    "enable_mem_reuse": True,
    "enable_profiling": False,
    "inter_op_num_threads": 0,
    "intra_op_num_threads": 0,
    "log_severity_level": -1,
    "log_verbosity_level": 0,
    "logid": "",
    "optimized_model_filepath": "",
    "profile_file_prefix": "onnxruntime_profile_",
    "use_deterministic_compute": False,
    "use_per_session_threads": True,
}


def test_defaults(ort: Any) -> None:
    options = ort.SessionOptions()
    assert {name: getattr(options, name) for name in DEFAULTS} == DEFAULTS
    assert options.execution_mode == ort.ExecutionMode.ORT_SEQUENTIAL
    assert options.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    run = ort.RunOptions()
    assert (run.terminate, run.logid, run.log_severity_level) == (False, "", -1)
    assert (run.only_execute_path_to_fetches, run.log_verbosity_level) == (False, 0)


def test_options_that_programs_set(ort: Any) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = np.int64(2)
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = 0
    options.log_severity_level = 3
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.use_deterministic_compute = True
    assert (options.intra_op_num_threads, options.enable_mem_pattern) == (2, False)
    assert options.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    [y] = ort.InferenceSession(TINY, sess_options=options).run(["y"], {"x": X})
    np.testing.assert_array_equal(y, np.maximum(X, 0))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("intra_op_num_threads", "4"),
        ("intra_op_num_threads", 4.0),
        ("graph_optimization_level", 99),
        ("logid", None),
        ("optimized_model_filepath", Path("x")),
    ],
)
def test_options_of_another_type(ort: Any, name: str, value: Any) -> None:
    with pytest.raises(TypeError):
        setattr(ort.SessionOptions(), name, value)


def test_misspelt_option(ort: Any) -> None:
    with pytest.raises(AttributeError):
        ort.SessionOptions().num_threads = 1
    with pytest.raises(AttributeError):
        ort.RunOptions().stop = True


def test_configuration_entries(ort: Any) -> None:
    options, run = ort.SessionOptions(), ort.RunOptions()
    options.add_session_config_entry("session.dynamic_block_base", "4")
    run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    assert options.get_session_config_entry("session.dynamic_block_base") == "4"
    assert run.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"
    with pytest.raises(RuntimeError, match="does not have configuration with key: other"):
        options.get_session_config_entry("other")
    with pytest.raises(RuntimeError, match="does not have configuration with key: other"):
        run.get_run_config_entry("other")
    with pytest.raises(TypeError):
        options.add_session_config_entry("session.dynamic_block_base", 4)
    with pytest.raises(TypeError):
        options.add_free_dimension_override_by_name("batch", "4")


def test_session_keeps_its_options(ort: Any) -> None:
    options = ort.SessionOptions()
    options.logid = "first"
    session = ort.InferenceSession(TINY, options)
    options.logid = "second"
    assert session.get_session_options().logid == "first"


def test_levels_are_numbers_with_names(ort: Any) -> None:
    level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    assert (level.name, level.value, int(level), level == 99) == ("ORT_ENABLE_ALL", 99, 99, True)
    assert str(level) == "GraphOptimizationLevel.ORT_ENABLE_ALL"
    names = ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_LAYOUT"]
    assert [*ort.GraphOptimizationLevel.__members__] == [*names, "ORT_ENABLE_ALL"]


CPU = "CPUExecutionProvider"


@pytest.mark.parametrize("given", [[CPU], (CPU,), [(CPU, {"arena_extend_strategy": "kNext"})]])
def test_provider_of_the_processor(ort: Any, given: Any) -> None:
    session = ort.InferenceSession(TINY, providers=given)
    assert session.get_providers() == [CPU]
    assert [*session.get_provider_options()] == [CPU] == session._providers
    assert session._provider_options.keys() == {CPU}
    assert ort.InferenceSession(TINY, None, [CPU], [{}]).get_providers() == [CPU]


@pytest.mark.parametrize("given", [["CUDAExecutionProvider"], ["CUDAExecutionProvider", CPU]])
def test_absent_provider_is_warned_of(ort: Any, given: list[str]) -> None:
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not in available provider"):
        session = ort.InferenceSession(TINY, providers=given)
    assert session.get_providers() == [CPU]
    with pytest.warns(UserWarning, match="Duplicate provider"):
        session.set_providers([CPU, CPU])
    assert session.get_providers() == [CPU]
    session.disable_fallback()
    session.enable_fallback()
    with (
        pytest.warns(UserWarning, match="not in available"),
        pytest.raises(RuntimeError, match="Unknown Provider Type: None"),
    ):
        session.set_providers(["None"])


@pytest.mark.parametrize("given", [[3], CPU, ["NoSuchProvider"], {CPU}])
@pytest.mark.filterwarnings("ignore")
def test_malformed_providers(ort: Any, given: Any) -> None:
    assert ort.InferenceSession(TINY, providers=given).get_providers() == [CPU]  # the fallback
    with pytest.raises((ValueError, RuntimeError), match="rovider"):
        ort.InferenceSession(TINY, providers=given, enable_fallback=0)


def test_lists_of_providers(ort: Any) -> None:
    assert CPU == ort.get_available_providers()[-1] == ort.get_all_providers()[-1]
    assert "CUDAExecutionProvider" in ort.get_all_providers()
    assert ort.get_device() == "CPU"
    assert {*ort.get_available_providers()} <= {*ort.get_all_providers()}


def test_own_provider_comes_first() -> None:
    assert ours.get_available_providers() == ["VTensorExecutionProvider", CPU]
    for given in (None, [], ["VTensorExecutionProvider"]):
        session = ours.InferenceSession(TINY, providers=given)
        assert session.get_providers() == ["VTensorExecutionProvider", CPU]


def test_profile_is_a_file_of_events(ort: Any, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = ort.InferenceSession(TINY, options)
    session.run(None, {"x": X})
    assert session.get_profiling_start_time_ns() > 0
    file = Path(session.end_profiling())
    assert file.parent == tmp_path
    assert len(json.loads(file.read_text())) > 2
    assert file.read_text().splitlines()[0] == "["
    assert session.end_profiling() == ""
    assert ort.InferenceSession(TINY).end_profiling() == ""


def test_module_functions(ort: Any) -> None:
    ort.set_default_logger_severity(4)
    ort.set_default_logger_verbosity(0)
    ort.disable_telemetry_events()
    ort.preload_dlls(cuda=False, cudnn=False)
    ort.set_seed(3)
    assert ort.get_version_string() == ort.__version__
    assert tuple(map(int, ort.__version__.split(".")[:2])) >= (1, 23)
    assert isinstance(ort.get_build_info(), str)
    with pytest.raises(RuntimeError, match="0:Verbose"):
        ort.set_default_logger_severity(9)


@pytest.fixture
def level() -> Any:
    """The level of VTensor's loggers, restored afterwards."""
    logger = logging.getLogger("vtensor")
    before = logger.level
    yield logger
    logger.setLevel(before)


def test_severity_is_the_level_of_the_loggers(level: logging.Logger) -> None:
    ours.set_default_logger_severity(3)
    assert level.level == logging.ERROR
    ours.set_default_logger_severity(0)
    assert level.level == logging.DEBUG


def test_option_without_meaning_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "_noted", set())
    caplog.set_level(logging.INFO, "vtensor")
    for _ in range(3):
        options = ours.SessionOptions()
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = True  # the default
        options.intra_op_num_threads = 1  # has a meaning
    assert [record.getMessage() for record in caplog.records] == [
        "SessionOptions.enable_cpu_mem_arena=False has no meaning for VTensor and is ignored"
    ]


def test_options_are_copied_by_pickle() -> None:
    options = ours.SessionOptions()
    options.logid = "log"
    options.add_session_config_entry("key", "value")
    options.add_free_dimension_override_by_name("batch", 2)
    copy = pickle.loads(pickle.dumps(options))
    assert (copy.logid, copy.get_session_config_entry("key")) == ("log", "value")
    assert ours.InferenceSession(TINY, copy).get_inputs()[0].shape == [2, 3]


def test_what_is_not_supported_says_so(tmp_path: Path) -> None:
    from vtensor.onnxruntime.errors import NotImplemented  # noqa: A004

    options = ours.SessionOptions()
    with pytest.raises(NotImplemented, match="compiled for ONNX Runtime"):
        options.register_custom_ops_library("ops.so")
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    with pytest.raises(NotImplemented, match="optimized_model_filepath"):
        ours.InferenceSession(TINY, options)
    (tmp_path / "model.ort").write_bytes(TINY)
    for model in (tmp_path / "model.ort", b"\x10\0\0\0ORTM" + TINY):
        with pytest.raises(NotImplemented, match="own format"):
            ours.InferenceSession(model)
    options = ours.SessionOptions()
    options.add_session_config_entry("session.load_model_format", "ORT")
    with pytest.raises(NotImplemented, match="own format"):
        ours.InferenceSession(TINY, options)
    with pytest.raises(TypeError, match="not SessionOptions"):
        ours.InferenceSession(TINY, {"threads": 1})  # type: ignore[arg-type]
