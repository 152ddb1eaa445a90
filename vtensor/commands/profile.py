"""``vtensor profile``: where the time of a run goes, beside what the machine can."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vtensor.commands.given import InputOption, ValueOption, make_feeds
from vtensor.commands.shared import (
    CacheOption,
    CalibrateOption,
    DebugOption,
    ExternalDataOption,
    FiniteOption,
    IsaOption,
    JsonOption,
    LibrariesOption,
    Limits,
    MaxBytesOption,
    Mix,
    ModelArgument,
    ObjectiveOption,
    OptimizeOption,
    Passes,
    PinOption,
    ReferenceOption,
    ShapeOption,
    ThreadsOption,
    ToleranceOption,
    TuneOption,
    errors,
    opened,
    print_json,
    print_lines,
)
from vtensor.language.wording import counted
from vtensor.pictures.files import write_file
from vtensor.pictures.timeline import profile_picture
from vtensor.report import Line
from vtensor.runtime.planning.tolerance import DEFAULT_TOLERANCE

if TYPE_CHECKING:
    from vtensor.runtime.tuning.profile import Profile, ProfiledStep, Work

#: Where nothing disturbs the runs, medians of steps add up to nearly that of their sum.
QUIET = 0.9

#: Columns behind a name: their titles.
_TITLES = f"{'ms':>9} {'share':>7} {'GFLOP/s':>9} {'GB/s':>7} {'of peak':>8}"


def profile(
    model: ModelArgument,
    runs: Annotated[int, typer.Option(help="Runs that count, after a first one.")] = 20,
    top: Annotated[
        int, typer.Option(min=0, help="How many steps to show, of the slowest and of the weak.")
    ] = 20,
    trace: Annotated[
        Path | None, typer.Option(help="Write all runs there as a trace for ui.perfetto.dev.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw it to this file, as a picture.")] = None,
    inputs: InputOption = None,
    value: ValueOption = None,
    shape: ShapeOption = None,
    threads: ThreadsOption = None,
    optimize: OptimizeOption = "all",
    objective: ObjectiveOption = "",
    tune: TuneOption = False,
    tolerance: ToleranceOption = DEFAULT_TOLERANCE,
    finite: FiniteOption = False,
    calibrate: CalibrateOption = None,
    isa: IsaOption = "max",
    libraries: LibrariesOption = None,
    pin: PinOption = None,
    reference: ReferenceOption = True,
    max_bytes: MaxBytesOption = None,
    external_data_root: ExternalDataOption = None,
    cache: CacheOption = True,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Say where the time of a run goes: by operator, by library, by step; what is lost between.

    What is not given by --input or --value is made up of seeded random numbers.
    """
    limits = Limits(reference, max_bytes, external_data_root)
    passes = Passes.parse(optimize, objective, tune, cache, tolerance, finite)
    with (
        errors(debug),
        opened(
            model,
            shape,
            threads,
            passes,
            isa,
            limits,
            Mix.parse(libraries, pin),
            inputs,
            value,
            calibrate,
        ) as given,
    ):
        feeds, _ = make_feeds(given.session.inputs, given.arrays, given.pictures, "imagenet")
        found = given.session.profile(feeds, runs=runs)
        if trace is not None:
            write_file(trace, json.dumps(found.to_trace()))
        if svg is not None:
            write_file(svg, profile_picture(found))
        if as_json:
            print_json(found.to_dict())
        else:
            print_lines(profile_lines(found, top))


def profile_lines(profile: Profile, top: int) -> Iterator[Line]:
    """A profile, line by line, with so many of its weak and of its slowest steps."""
    yield from _summary(profile)
    weak = {_title(one): one for one in profile.weak[:top]}
    if weak:
        below = f"below {profile.WEAK:.0%} of peak: look here first"
        yield from _table(profile, f"{counted(len(profile.weak), 'step')} {below}", weak)
    by = {
        "operator": profile.by(lambda step: step.op),
        "library": profile.by(lambda step: step.library),
    }
    for title, groups in by.items():
        named = {f"{name} ({group.steps})": group for name, group in groups.items()}
        yield from _table(profile, f"by {title} (steps)", named)
    slowest = {_title(one): one for one in sorted(profile.steps, key=lambda one: -one.ns)[:top]}
    yield from _table(profile, f"the slowest {len(slowest)} of {len(profile.steps)}", slowest)


def _title(one: ProfiledStep) -> str:
    step = one.step
    return f"{step.node.name}: {step.op} on {step.library}, {' + '.join(step.kernels)}"


def _summary(profile: Profile) -> Iterator[Line]:
    total, gaps, run_ns = profile.total, profile.gaps, profile.run_ns
    runs = f"median of {counted(len(profile.runs), 'run')} on {counted(profile.threads, 'thread')}"
    yield Line("head", f"{profile.name}: {run_ns / 1e6:.3f} ms, {runs}")
    parts = ", ".join(f"{ns / 1e6:.3f} {where}" for where, ns in gaps._asdict().items())
    lost = f"{sum(gaps) / 1e6:.3f} ms ({sum(gaps) / run_ns:.1%}): {parts}"
    yield Line("", f"  steps {profile.busy_ns / 1e6:.3f} ms; gaps {lost}")
    yield Line("", f"  {total.operations / 1e9:.3f} GFLOP, {total.bytes / 1e6:.2f} MB by all steps")
    yield Line("note", f"  {_machine(profile)}")
    if total.ns < QUIET * profile.busy_ns:
        share = f"medians of steps add up to {total.ns / profile.busy_ns:.0%} of it"
        yield Line("ref", f"  runs differ: {share}; what else ran?")
    for name, group in profile.overheads.items():
        what = f"  {name} ({group.steps}): {group.ns / 1e6:.3f} ms ({group.ns / run_ns:.1%})"
        yield Line("ref" if group.steps else "note", what)


def _machine(profile: Profile) -> str:
    if profile.peaks is None:
        return "no library is there that shows what the machine can"
    peaks = profile.peaks
    return (
        f"the machine: {peaks.gflops:.0f} GFLOP/s in f32 products, {peaks.gbytes:.1f} GB/s in"
        " copies, measured now"
    )


def _table(profile: Profile, title: str, rows: Mapping[str, Work]) -> Iterator[Line]:
    width = max(map(len, (title, *rows)))
    yield Line("head", f"{title:<{width}} {_TITLES}" if rows else title)
    for name, work in rows.items():
        reached = work.of_peak
        cells = (
            f"{work.ns / 1e6:>9.3f} {work.ns / profile.run_ns:>7.1%} {work.gflops:>9.1f}"
            f" {work.gbytes:>7.1f} {'' if reached is None else f'{reached:.0%}':>8}"
        )
        yield Line("", f"{name:<{width}} {cells}".rstrip())
