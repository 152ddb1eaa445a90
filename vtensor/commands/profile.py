"""``vtensor profile``: the time of a run by operator, library and step, and the machine's peaks."""

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
    LoadOptions,
    MaxBytesOption,
    Mix,
    ModelArgument,
    ObjectiveOption,
    OptimizeOption,
    Passes,
    PinOption,
    PrecisionOption,
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

#: A sign that other processes disturbed the runs: the median times of the steps add up to less than
#: this share of the median, over runs, of the sum of all steps.
QUIET_SHARE = 0.9

#: The titles of the columns after the name.
_TITLES = f"{'ms':>9} {'share':>7} {'GFLOP/s':>9} {'GB/s':>7} {'of peak':>8}"


def profile(
    model: ModelArgument,
    runs: Annotated[int, typer.Option(help="The number of measured runs, after a first one.")] = 20,
    top: Annotated[
        int, typer.Option(min=0, help="The most steps to show in the lists of slow and weak steps.")
    ] = 20,
    trace: Annotated[
        Path | None, typer.Option(help="Write all runs to this file, a trace for ui.perfetto.dev.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw the profile to this SVG file.")] = None,
    inputs: InputOption = None,
    value: ValueOption = None,
    shape: ShapeOption = None,
    threads: ThreadsOption = None,
    optimize: OptimizeOption = "all",
    objective: ObjectiveOption = "",
    tune: TuneOption = False,
    tolerance: ToleranceOption = DEFAULT_TOLERANCE,
    precision: PrecisionOption = "f32",
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
    """Measure the time of a run: by operator, by library, by step, and between steps.

    An input without --input or --value gets random numbers from a fixed seed.
    """
    limits = LoadOptions(reference, max_bytes, external_data_root)
    passes = Passes.parse(optimize, objective, tune, cache, tolerance, finite, precision)
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
        ) as loaded,
    ):
        feeds, _ = make_feeds(loaded.session.inputs, loaded.arrays, loaded.pictures, "imagenet")
        measured = loaded.session.profile(feeds, runs=runs)
        if trace is not None:
            write_file(trace, json.dumps(measured.to_trace()))
        if svg is not None:
            write_file(svg, profile_picture(measured))
        if as_json:
            print_json(measured.to_dict())
        else:
            print_lines(profile_lines(measured, top))


def profile_lines(profile: Profile, top: int) -> Iterator[Line]:
    """Yield the lines of a profile.

    Args:
        profile: the profile.
        top: the most steps in each of two lists: the slowest steps, and the steps that are far
            below the machine's peak.
    """
    yield from _summary(profile)
    weak = {_title(step): step for step in profile.weak[:top]}
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
    slowest = sorted(profile.steps, key=lambda step: -step.ns)[:top]
    title = f"the slowest {len(slowest)} of {len(profile.steps)}"
    yield from _table(profile, title, {_title(step): step for step in slowest})


def _title(profiled: ProfiledStep) -> str:
    step = profiled.step
    return f"{step.node.name}: {step.op} on {step.library}, {' + '.join(step.kernels)}"


def _summary(profile: Profile) -> Iterator[Line]:
    total, gaps, run_ns = profile.total, profile.gaps, profile.run_ns
    runs = f"median of {counted(len(profile.runs), 'run')} on {counted(profile.threads, 'thread')}"
    yield Line("head", f"{profile.name}: {run_ns / 1e6:.3f} ms, {runs}")
    parts = ", ".join(f"{ns / 1e6:.3f} {place}" for place, ns in gaps._asdict().items())
    lost = f"{sum(gaps) / 1e6:.3f} ms ({sum(gaps) / run_ns:.1%}): {parts}"
    yield Line("", f"  steps {profile.busy_ns / 1e6:.3f} ms; gaps {lost}")
    yield Line("", f"  {total.operations / 1e9:.3f} GFLOP, {total.bytes / 1e6:.2f} MB by all steps")
    yield Line("note", f"  {_machine(profile)}")
    if total.ns < QUIET_SHARE * profile.busy_ns:
        share = f"medians of steps add up to {total.ns / profile.busy_ns:.0%} of it"
        yield Line("ref", f"  runs differ: {share}; what else ran?")
    for name, group in profile.overheads.items():
        text = f"  {name} ({group.steps}): {group.ns / 1e6:.3f} ms ({group.ns / run_ns:.1%})"
        yield Line("ref" if group.steps else "note", text)


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
