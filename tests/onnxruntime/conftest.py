"""The two packages under test: ONNX Runtime itself, and VTensor's interface of the same names."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import onnxruntime
import pytest

from vtensor import onnxruntime as ours

onnxruntime.set_default_logger_severity(4)  # its own warnings about test models


@pytest.fixture(params=[onnxruntime, ours], ids=["real", "ours"])
def ort(request: pytest.FixtureRequest) -> Any:
    """The package under test."""
    return request.param


@pytest.fixture(autouse=True)
def _level_of_the_log() -> Iterator[None]:
    """Restore the level of VTensor's log, which the interface sets for the process."""
    log = logging.getLogger("vtensor")
    level = log.level
    yield
    log.setLevel(level)


@pytest.fixture
def errors(ort: Any) -> Any:
    """The module of the package's exception classes."""
    return import_module(f"{ort.__name__}.capi.onnxruntime_pybind11_state")
