"""Program: what is checked when it is made, what when it runs, and what a run does."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.native.stepping import (
    Array,
    NamedSteps,
    Returns,
    copied,
    counter,
    floats,
    frozen,
    held,
    step_of,
)
from vtensor.language.dtype import exponent
from vtensor.runtime._replay import Arena, Program, StepFailed, Team, empty_step, finite


@pytest.fixture(scope="module")
def team() -> Iterator[Team]:
    """Make a team of two threads for all tests."""
    pair = Team(2, "test")
    yield pair
    pair.close()


@pytest.fixture
def scale(step: NamedSteps) -> Returns:
    """Return the step that multiplies four numbers by three."""
    return step("scale")


X = floats(1, 2, 3, 4)


def zeros(count: int = 4) -> Array:
    return floats(*[0] * count)


def test_a_chain_runs_over_all_kinds_of_regions(team: Team, step: NamedSteps) -> None:
    """y = 3 * x + constant, and again in place."""
    arena, bias, scale, add = Arena(96), floats(10, 20, 30, 40), step("scale"), step("sum")
    regions = [16, bias, arena, 16]
    steps = [
        (scale, [(0, 0), (2, 0)]),
        (add, [(2, 0), (1, 0), (2, 32), (2, 64)]),
        (scale, [(2, 32), (2, 32)]),
        (add, [(2, 32), (2, 32), (3, 0), (2, 0)]),
    ]
    program = Program(regions, steps)
    assert len(program) == 4
    expected = (X * 3 + bias) * 6
    weak = weakref.ref(bias)
    del regions, bias
    gc.collect()
    assert weak() is not None  # the program needs it
    for _ in range(3):  # the second time nothing has moved, the third time everything
        for x, y in ((X, first := zeros()), (X, first), (X.copy(), zeros())):
            y[:] = np.nan
            team.run(program, [x, y])
            np.testing.assert_array_equal(y, expected)
        arena.grow(arena.nbytes + 4096)


def test_larger_shared_and_empty_inputs_are_taken(team: Team, step: NamedSteps) -> None:
    y = zeros(8)
    places = [(0, 0), (1, 0), (2, 0), (3, 0)]
    program = Program([16, 16, 16, Arena(16)], [(step("sum"), places)])
    team.run(program, [X, X.tobytes(), y.data])
    np.testing.assert_array_equal(y[:4], X * 2)
    team.run(program, (X, X, y))
    team.run(Program([], []), [])
    team.run(Program([0, Arena()], []), [b""])


#: Regions, the places of a step on (a, b, dst, scratch), the error, and what it says. A number is
#: an offset in region 0.
MISPLACED: dict[str, tuple[list[Any], list[Any], type[Exception], str]] = {
    "too few": ([64], [0, 0, 0], ValueError, "step 0: the step has 4 slots, 3 "),
    "no such region": ([64], [0, (1, 0), 16, 32], ValueError, "region 1, of 1"),
    "after its end": ([64], [65, 0, 0, 0], ValueError, "at 65, region 0 has 64"),
    "over its end": (
        *([64], [0, 52, 16, 32]),
        *(ValueError, r"slot 1 \(b\) needs 16 bytes at 52, region 0 has 64"),
    ),
    "far": ([64], [(1 << 64) - 4, 0, 0, 0], ValueError, "region 0 has 64"),
    "misaligned": ([128], [0, 0, 20, 48], ValueError, r"dst\) must start at a multiple of 16 byte"),
    "scratch in an input": (
        *([64], [0, 20, 48, 16]),
        *(ValueError, r"scratch\) is scratch and overlaps slot 1 \(b\)"),
    ),
    "constant is written": (
        *([X, 64], [(1, 0), (1, 0), 0, (1, 16)], ValueError),
        r"dst\) is written, and region 0 is a constant",
    ),
    "read-only constant is scratch": (
        *([frozen(), 64], [(1, 0), (1, 0), (1, 16), 0], ValueError),
        "region 0 is a constant",
    ),
    "negative offset": ([64], [-4, 0, 0, 0], TypeError, "incompatible"),
    "no number of bytes": ([-1], [0, 0, 0, 0], ValueError, "region 0 has no number of bytes"),
    "no buffer": ([None], [0, 0, 0, 0], TypeError, "region 0: NoneType has no buffer"),
    "gaps": ([np.zeros((4, 4)).T], [0, 0, 0, 0], ValueError, "region 0 must be contiguous"),
}


@pytest.mark.parametrize("case", MISPLACED)
def test_places_are_refused(case: str, step: NamedSteps) -> None:
    regions, places, error, message = MISPLACED[case]
    with pytest.raises(error, match=message):
        Program(regions, [(step("sum"), [p if isinstance(p, tuple) else (0, p) for p in places])])


#: Bindings of a run of ``y = 3 * x`` in regions (16 bytes, a constant, an arena, 16 bytes).
ROOM = floats(*range(16))
MISBOUND: dict[str, tuple[Any, type[Exception], str]] = {
    "too few": ([X], ValueError, "binds 2 regions, 1 buffers"),
    "too many": ([X, zeros(), X], ValueError, "binds 2 regions, 3 buffers"),
    "too small": ([X[:3], zeros()], ValueError, "region 0 needs 16 bytes, .* has 12"),
    "read-only output": ([X, frozen()], ValueError, "region 3 must be writable"),
    "gaps": ([ROOM[::2], zeros()], ValueError, "region 0 must be contiguous"),
    "misaligned": ([ROOM.view(np.uint8)[1:], X.copy()], ValueError, "region 0 .* multiple of 4"),
    "into its input": ([ROOM[:4], ROOM[3:]], ValueError, "on 3 is written and overlaps region 0"),
    "into a constant": ([X, ROOM[8:]], ValueError, "region 3 is written and overlaps region 1"),
    "no buffer": ([X, None], TypeError, "region 3: NoneType has no buffer"),
    "no sequence": (3, TypeError, "incompatible"),
}


@pytest.mark.parametrize("case", MISBOUND)
def test_bindings_are_refused(case: str, team: Team, scale: Returns) -> None:
    bindings, error, message = MISBOUND[case]
    program = Program([16, ROOM[8:12], Arena(16), 16], [(scale, [(0, 0), (3, 0)])])
    before = ROOM.copy()
    with pytest.raises(error, match=message):
        team.run(program, bindings)
    np.testing.assert_array_equal(ROOM, before)
    team.run(program, [X, y := zeros()])
    np.testing.assert_array_equal(y, X * 3)


def test_an_arena_that_is_bound_as_well_is_refused(team: Team, scale: Returns) -> None:
    arena = Arena(64)
    into = Program([arena, 16], [(scale, [(1, 0), (0, 0)])])
    with pytest.raises(ValueError, match="region 0 is written and overlaps region 1"):
        team.run(into, [arena.memory()])
    reads = Program([arena, 16, 16], [(scale, [(1, 0), (2, 0)])])
    arena.memory()[:16] = X.view(np.uint8)
    team.run(reads, [arena.memory(), y := zeros()])  # no step writes there
    np.testing.assert_array_equal(y, X * 3)


def test_steps_live_as_long_as_their_program(c_steps: Path, scale: Returns) -> None:
    owners = counter(c_steps, "owners")
    before = owners.value
    program = Program([64], [(scale, [(0, 0), (0, 16)])] * 3)
    assert owners.value == before + 3
    with pytest.raises(ValueError, match="step 1"):
        Program([64], [(scale, [(0, 0), (0, 16)]), (scale, [])])
    assert owners.value == before + 3
    del program
    assert owners.value == before


@pytest.mark.parametrize(
    ("name", "first", "message"),
    [
        ("scale", -1, "scale by three: negative: -1"),
        ("scale", 0, "status 7, without a reason"),
        ("throws_at_negative", -1, "throwing: threw an exception: thrown at a negative number"),
    ],
)
def test_a_failing_step_ends_the_run(
    team: Team, c_steps: Path, cpp_steps: Path, name: str, first: int, message: str
) -> None:
    later: list[int] = []
    fails = held(step_of(c_steps if name == "scale" else cpp_steps, name))
    steps = [(empty_step(), []), (fails, [(0, 0), (1, 0)]), (lambda: later.append(1), [])]
    program = Program([16, 16], steps)
    with pytest.raises(StepFailed, match=message) as caught:
        team.run(program, [X * first, X.copy()])
    assert caught.value.index == 1
    assert isinstance(caught.value, RuntimeError)
    assert not later
    team.run(program, [X, X.copy()])
    assert later == [1]


def test_what_a_callable_raises_is_what_the_caller_gets(team: Team) -> None:
    mine = KeyError("mine")

    def fails() -> None:
        raise mine

    for use in (lambda: team.run(Program([], [(fails, [])]), []), lambda: team.call(fails)):
        with pytest.raises(KeyError) as caught:
            use()
        assert caught.value is mine


def test_a_callable_sees_what_steps_before_it_wrote(team: Team, scale: Returns) -> None:
    arena, seen = Arena(32), []

    def double() -> None:
        values = arena.memory()[:16].view(np.float32)
        seen.append(values.copy())
        values *= 2

    steps = [(scale, [(0, 0), (1, 0)]), (double, []), (scale, [(1, 0), (2, 0)])]
    team.run(Program([16, arena, 16], steps), [X, y := zeros()])
    np.testing.assert_array_equal(seen[0], X * 3)
    np.testing.assert_array_equal(y, X * 18)


def test_times_are_those_of_each_step(team: Team) -> None:
    program = Program([], [(empty_step(), []), (lambda: time.sleep(0.01), []), (empty_step(), [])])
    times = np.zeros(6, np.int64)
    before = time.monotonic_ns()
    team.run(program, [], times)
    moments = [before, *times.tolist(), time.monotonic_ns()]
    assert moments == sorted(moments)
    assert times[3] - times[2] >= 10_000_000 > times[1] - times[0]


EMPTY: list[Any] = [(empty_step(), [])]
REFUSED: list[tuple[Callable[[Team], Any], str]] = [
    (lambda _: Program([8], [(print, [(0, 0)])]), "step 0: what is called has no slots"),
    (lambda _: Program([], [(print, [])], 1, {0: [0]}), "step 0: what is called takes no sizes"),
    (lambda _: Team(0, "none"), "1 to 1024"),
    *(
        (lambda team, t=times: team.run(Program([], EMPTY * 2), [], t), f"times {message}")
        for times, message in (
            (np.zeros(3, np.int64), "has 24 bytes, not two int64 for each of 2 steps"),
            (np.zeros(5, np.int64), "has 40 bytes"),
            (bytes(32), "must be writable"),
            (np.zeros(40, np.uint8)[1:33], "must start at a multiple of 8"),
            (np.zeros(8, np.int64)[::2], "must be writable and contiguous"),
        )
    ),
]


@pytest.mark.parametrize(("use", "message"), REFUSED)
def test_what_does_not_fit_is_refused(use: Callable[[Team], Any], message: str, team: Team) -> None:
    with pytest.raises(ValueError, match=message):
        use(team)


def nested(program: Callable[[], Program]) -> Program:
    """Make a program that runs another on a team of its own, which could go on forever."""

    def inner() -> None:
        team = Team(1, "inner")
        try:
            team.run(program(), [])
        finally:
            team.close()

    return Program([], [(inner, [])])


def test_a_program_does_not_run_inside_of_itself(team: Team) -> None:
    program: Program = Program([], [(lambda: team.run(program, []), [])])
    other: Program = nested(lambda: other)
    for endless in (program, other):
        with pytest.raises(RuntimeError, match="the program is running"):
            team.run(endless, [])


def test_an_arena_is_one_runs_at_a_time(team: Team) -> None:
    arena = Arena(64)
    inner = Program([arena], [(empty_step(), [])])
    outer = Program([arena], [(lambda: team.run(inner, []), [])])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the arena is in use"):
            team.run(outer, [])
        team.run(inner, [])


def test_a_circle_through_a_callable_is_collected() -> None:
    class Plan:
        def __init__(self) -> None:
            self.program = Program([np.zeros(3)], [(self.step, [])])

        def step(self) -> None: ...

    weak = weakref.ref(Plan())
    gc.collect()
    assert weak() is None


def test_slots_without_bytes_may_lie_anywhere(c_steps: Path) -> None:
    step, slots = copied(c_steps, "waiting")
    slots[0].bytes = 0
    program = Program([b"", b"constant"], [(held(step), [(0, 0)]), (held(step), [(1, 3)])])
    with pytest.raises(ValueError, match="at 9, region 1 has 8"):
        Program([b"", b"constant"], [(held(step), [(1, 9)])])
    assert len(program) == 2


#: How often the step ``root`` runs: leaving a check to the run, and checking by itself.
OPTIMISTIC, CAREFUL, AGAIN = (1, 0), (0, 1), (1, 1)
GOOD, BAD = floats(1, 4, 9, 16), floats(1, -4, 9, 16)


def roots(team: Team, library: Path, program: Program, x: Array) -> tuple[int, int]:
    """Run a program that ends with roots of x; return how often the steps ran in either way."""
    counts = [counter(library, name) for name in ("with_doubt", "without_doubt")]
    before, y = [count.value for count in counts], zeros()
    team.run(program, [x, y])
    np.testing.assert_array_equal(y, np.sqrt(np.maximum(x, 0)))
    optimistic, careful = (count.value - b for count, b in zip(counts, before, strict=True))
    return optimistic, careful


def test_a_run_whose_doubt_was_justified_is_made_again(
    c_steps: Path, team: Team, step: NamedSteps
) -> None:
    """And the next ones check step by step: one, then two, then four."""
    program = Program([16, 16], [(step("root"), [(0, 0), (1, 0)])], repeatable=True)
    inputs = (GOOD, GOOD, BAD, GOOD, GOOD, BAD, GOOD, GOOD, GOOD)
    runs = [roots(team, c_steps, program, x) for x in inputs]
    assert runs[:4] == [OPTIMISTIC, OPTIMISTIC, AGAIN, CAREFUL]
    assert runs[4:] == [OPTIMISTIC, AGAIN, CAREFUL, CAREFUL, OPTIMISTIC]


@pytest.mark.parametrize("runs", [1, 2])
def test_programs_of_one_arena_are_in_doubt_together(
    runs: int, c_steps: Path, team: Team, step: NamedSteps
) -> None:
    """Plans of a network for other sizes have one: the first run of each need not be made twice."""
    root, arena = step("root"), Arena(64)
    steps = [(root, [(1, 0), (0, 0)]), (root, [(1, 0), (2, 0)])]
    first, other = (Program([arena, 16, 16], steps, 0, {}, True) for _ in range(2))
    for _ in range(runs):  # after the second, the first program's next one is tried again
        roots(team, c_steps, first, BAD)
    assert roots(team, c_steps, other, BAD) == (0, 2)


def test_what_may_not_run_twice_checks_by_itself(
    c_steps: Path, team: Team, step: NamedSteps
) -> None:
    called: list[int] = []
    root = (step("root"), [(0, 0), (1, 0)])
    calling = Program([16, 16], [root, (lambda: called.append(1), [])], repeatable=True)
    for program in (Program([16, 16], [root]), calling):
        assert roots(team, c_steps, program, BAD) == CAREFUL
    assert called == [1]


#: Around a block of 4 KiB, and what a team shares.
COUNTS = (1, 3, 1023, 1024, 1025, 40_000, 300_001)
NUMPY = {"f16": "f2", "bf16": ml_dtypes.bfloat16, "f32": "f4", "f64": "f8"}
F32 = (4, 0x7F800000)


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("count", COUNTS)
def test_one_number_that_is_not_finite_is_found(dtype: str, count: int, team: Team) -> None:
    numbers = (np.arange(count) % 1000).astype(NUMPY[dtype])
    numbers[0] = {"f16": 6e4}.get(dtype, 3e38)
    kinds = [exponent(dtype)]
    assert team.call(lambda: finite([numbers], kinds))
    for at in {0, count // 2, count - 1}:
        for wrong in (np.nan, np.inf, -np.inf):
            spoilt = numbers.copy()
            spoilt[at] = wrong
            assert not team.call(lambda: finite([spoilt], kinds))  # noqa: B023
            assert finite([spoilt], [(numbers.itemsize, 0)]), "no exponent is looked at"


@pytest.mark.parametrize(
    ("dtype", "element", "wrong"),
    [
        ("s64", np.int64, None),
        ("bool", np.bool_, None),
        ("f8e5m2", ml_dtypes.float8_e5m2, np.inf),
        ("f8e4m3fn", ml_dtypes.float8_e4m3fn, np.nan),
    ],
)
def test_types_say_what_to_look_for(dtype: str, element: Any, wrong: float | None) -> None:
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
def test_a_run_says_whether_what_it_binds_is_finite(where: str, team: Team, scale: Returns) -> None:
    x, y, other = X.copy(), zeros(), floats(5, 6, 7, 8)
    if where == "read":
        other[2] = np.nan  # no step touches it
    elif where == "written":
        x[1] = 3e38  # three times that is infinite
    steps = [(scale, [(0, 0), (1, 0)]), (scale, [(0, 0), (2, 0)])]
    program, bound = Program([16, Arena(16), 16, 16], steps), [x, y, other]
    assert team.run(program, bound, exponents=[F32] * 3) == (where == "nowhere")
    assert team.run(program, bound), "no exponent is looked at"
    assert team.run(program, bound, exponents=[(4, 0)] * 3), "no exponent is looked at"


@pytest.mark.parametrize("result", [1.0, np.nan])
def test_what_a_callable_writes_is_looked_at_after_it(result: float, team: Team) -> None:
    y = floats(np.nan, 0, 0, 0)
    program = Program([16], [(lambda: y.__setitem__(0, result), [])])
    assert team.run(program, [y], exponents=[F32]) == bool(np.isfinite(result))


@pytest.mark.parametrize(
    "exponents",
    [[F32], [F32] * 3, [F32, (3, 1)], [F32, (16, 1)], [F32, (0, 0)], [F32, (1, 0x100)]],
)
def test_exponents_are_refused_that_do_not_fit(exponents: Any, team: Team) -> None:
    with pytest.raises(ValueError, match=r"exponents for|bytes"):
        finite([X, X], exponents)
    with pytest.raises(ValueError, match=r"exponents for|bytes"):
        team.run(Program([16, 16], []), [X, X], exponents=exponents)
