"""Convolutions whose code oneDNN keeps until the process ends are limited in number."""

from __future__ import annotations

import pytest

from tests.libraries.processes import printed
from tests.libraries.slow import slow_but


@pytest.mark.parametrize("cap", slow_but(["avx2", "max"], ["sse41", "avx2", "max"]))
def test_functions_apart_give_the_same_and_leave_nothing(cap: str) -> None:
    *faults, last = printed("-m", "tests.native.kept_code", cap, timeout=500).splitlines()
    assert faults == []
    assert cap == "sse41" or int(last.removesuffix(" apart")) > 10
