"""What is fused behind an operator gives what it gives by itself, under each cap."""

from __future__ import annotations

import pytest

from libdesc.onednn import routines_fused
from tests.libraries.processes import printed
from tests.libraries.slow import ALL
from tests.operators import fused
from tests.operators.levels import CAPS


@pytest.mark.parametrize("cap", CAPS)
def test_followers(cap: str) -> None:
    share = "1" if ALL else "12"
    *faults, last = printed("-m", "tests.operators.fused", cap, share).splitlines()
    assert faults == []
    assert int(last.removesuffix(" taken")) > 60


@pytest.mark.parametrize("wrong", [("relu", 0.0), ("abs", 0.0), ("hardswish", 2.0**127)])
def test_a_wrong_follower_is_found(
    monkeypatch: pytest.MonkeyPatch, wrong: tuple[str, float]
) -> None:
    """The twin: one makes 0 of NaN, one is another function, one makes NaN of -infinity."""
    monkeypatch.setattr(routines_fused, "bounded", lambda attr, _: attr.eltwise(*wrong))
    monkeypatch.setattr(fused, "LEADS", {"Conv2D": fused.LEADS["Conv2D"]})
    assert any(line.startswith("Conv2D, relu, ") for line in fused.faults())
