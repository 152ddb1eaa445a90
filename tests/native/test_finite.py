"""Whether numbers are finite, alone and behind a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.native.stepping import held, step_of
from tests.native.test_program import floats
from vtensor.language.dtype import exponent
from vtensor.runtime._replay import Arena, Program, Team, finite

#: Around a block of 4 KiB, and what a team shares.
COUNTS = (1, 3, 1023, 1024, 1025, 40_000, 300_001)
F32 = (4, 0x7F800000)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("count", COUNTS)
def test_one_number_that_is_not_is_found(dtype: str, count: int, team: Team) -> None:
    element = {"f16": "f2", "bf16": ml_dtypes.bfloat16, "f32": "f4", "f64": "f8"}[dtype]
    numbers = (np.arange(count) % 1000).astype(element)
    numbers[0] = {"f16": 6e4}.get(dtype, 3e38)
    told = [exponent(dtype)]
    assert team.call(lambda: finite([numbers], told))
    for at in {0, count // 2, count - 1}:
        for wrong in (np.nan, np.inf, -np.inf):
            spoilt = numbers.copy()
            spoilt[at] = wrong
            assert not team.call(lambda: finite([spoilt], told))  # noqa: B023
            assert finite([spoilt], [(numbers.itemsize, 0)]), "nobody looks"


@pytest.mark.parametrize(
    ("dtype", "wrong"), [("s64", None), ("bool", None), ("f8e5m2", np.inf), ("f8e4m3fn", np.nan)]
)
def test_types_say_what_to_look_for(dtype: str, wrong: float | None) -> None:
    element = np.dtype(
        {"f8e5m2": ml_dtypes.float8_e5m2, "f8e4m3fn": ml_dtypes.float8_e4m3fn}.get(
            dtype, np.int64 if dtype == "s64" else np.bool_
        )
    )
    everything = np.zeros(100, element)
    assert finite([everything], [exponent(dtype)])
    if wrong is not None:
        everything[42] = wrong
        assert not finite([everything], [exponent(dtype)])


def test_memory_at_an_odd_address_is_looked_at() -> None:
    room = np.zeros(41, np.uint8)
    room[1:].view("u4")[9] = 0x7F800001
    assert not finite([room[1:]], [F32])
    assert finite([room[:37]], [F32])


@pytest.mark.parametrize("where", ["nowhere", "read", "written"])
def test_a_run_says_it_of_what_it_binds(where: str, team: Team, c_steps: Path) -> None:
    scale = held(step_of(c_steps, "scale"))
    x, y, other = floats(1, 2, 3, 4), floats(0, 0, 0, 0), floats(5, 6, 7, 8)
    if where == "read":
        other[2] = np.nan  # no step touches it
    elif where == "written":
        x[1] = 3e38  # three times that is infinite
    program = Program(
        [16, Arena(16), 16, 16], [(scale, [(0, 0), (1, 0)]), (scale, [(0, 0), (2, 0)])]
    )
    bound = [x, y, other]
    assert team.run(program, bound, exponents=[F32] * 3) == (where == "nowhere")
    assert team.run(program, bound), "nobody looks"
    assert team.run(program, bound, exponents=[(4, 0)] * 3), "nobody looks"


@pytest.mark.parametrize("result", [1.0, np.nan])
def test_what_python_writes_is_looked_at_behind_it(result: float, team: Team) -> None:
    y = floats(np.nan, 0, 0, 0)
    program = Program([16], [(lambda: y.__setitem__(0, result), [])])
    assert team.run(program, [y], exponents=[F32]) == bool(np.isfinite(result))


@pytest.mark.parametrize(
    "exponents",
    [[F32], [F32] * 3, [F32, (3, 1)], [F32, (16, 1)], [F32, (0, 0)], [F32, (1, 0x100)]],
)
def test_what_does_not_fit_is_an_error(exponents: Any, team: Team) -> None:
    x = floats(1, 2, 3, 4)
    with pytest.raises(ValueError, match=r"exponents for|bytes"):
        finite([x, x], exponents)
    with pytest.raises(ValueError, match=r"exponents for|bytes"):
        team.run(Program([16, 16], []), [x, x], exponents=exponents)
