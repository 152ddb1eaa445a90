"""The fixtures of ``tests/``, for the tests of the evaluation."""

from __future__ import annotations

from tests.conftest import (
    bench,
    code_pages_stay,
    compiled_once,
    declared_costs,
    no_cache,
    scratch,
)

__all__ = ["bench", "code_pages_stay", "compiled_once", "declared_costs", "no_cache", "scratch"]
