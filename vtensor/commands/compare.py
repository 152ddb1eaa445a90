"""``vtensor compare``: run a model in another engine too, and find where the results part."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from vtensor.commands.given import InputOption, ValueOption, make_feeds
from vtensor.commands.shared import (
    DebugOption,
    ExternalDataOption,
    IsaOption,
    JsonOption,
    LibrariesOption,
    LoadOptions,
    MaxBytesOption,
    Mix,
    ModelArgument,
    OptimizeOption,
    Passes,
    PinOption,
    PrecisionOption,
    ReferenceOption,
    ShapeOption,
    ThreadsOption,
    errors,
    opened,
    print_json,
    progress,
    write_npz,
)
from vtensor.errors import InputError, PeerError
from vtensor.image import PREPROCESS
from vtensor.language.wording import counted

if TYPE_CHECKING:
    from vtensor.commands.comparison.difference import Difference
    from vtensor.commands.comparison.search import Found

#: The engine that VTensor is compared with.
ENGINE = "onnxruntime"

#: The exit codes for results that differ, and for an engine that cannot run the model.
DIFFERENT, TROUBLE = 1, 2

#: Options of a session that a reproduction leaves out.
_DEFAULTS: Mapping[str, Any] = {"optimize": "all", "precision": "f32", "libraries": None, "pin": {}}

#: The program that shows a difference again.
_SCRIPT = """\
import numpy as np, onnxruntime, vtensor

feeds = dict(np.load("inputs.npz"))
[ours] = vtensor.Session("part.onnx"{options}).run(None, feeds)
[theirs] = onnxruntime.InferenceSession("part.onnx").run(None, feeds)
print(ours, theirs, sep="\\n")
"""


def compare(
    model: ModelArgument,
    engine: Annotated[
        str, typer.Option("--with", help=f"The other engine: {ENGINE}.", metavar="ENGINE")
    ] = ENGINE,
    inputs: InputOption = None,
    value: ValueOption = None,
    shape: ShapeOption = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="The largest accepted difference of floats, relative to the value's largest "
            "number; default: 1e-4 for f32, 1e-2 for f16.",
        ),
    ] = None,
    steps: Annotated[
        float,
        typer.Option(min=0, help="The accepted difference of quantised values, in their steps."),
    ] = 1.0,
    threads: ThreadsOption = None,
    optimize: OptimizeOption = "all",
    precision: PrecisionOption = "f32",
    isa: IsaOption = "max",
    libraries: LibrariesOption = None,
    pin: PinOption = None,
    reference: ReferenceOption = True,
    max_bytes: MaxBytesOption = None,
    external_data_root: ExternalDataOption = None,
    preprocess: Annotated[
        str, typer.Option(help=f"Preprocessing of pictures: {', '.join(PREPROCESS)}.")
    ] = "imagenet",
    save: Annotated[
        Path | None,
        typer.Option(help="The folder for a reproduction; default: a new temporary folder."),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Compare the outputs of a model with another engine's, and find where they part.

    If an output differs by more than the tolerance, the first such value is found by bisection: a
    value that differs although the engines agree on all that its node reads. A run in float64 says
    which engine is nearer, and the smallest part of the model that shows the difference is saved.
    The exit code is 0 if the outputs agree, 1 if they differ, and 2 if they cannot be compared.
    """
    limits = LoadOptions(reference, max_bytes, external_data_root)
    passes = Passes(optimize, "", cache_dir=False, precision=precision)
    mix = Mix.parse(libraries, pin)
    with errors(debug, TROUBLE):
        if engine != ENGINE:
            raise InputError(f"--with {engine}: the only other engine is {ENGINE}")
        from vtensor.benchmark.onnxruntime import OnnxRuntime
        from vtensor.commands.comparison.engines import Engines
        from vtensor.commands.comparison.parts import Parts
        from vtensor.commands.comparison.search import Search

        if OnnxRuntime.absent():
            raise PeerError(f"{ENGINE} is not installed: pip install {ENGINE}")
        with opened(model, shape, threads, passes, isa, limits, mix, inputs, value) as loaded:
            session = loaded.session
            feeds, made_up = make_feeds(session.inputs, loaded.arrays, loaded.pictures, preprocess)
            ours = dict(
                zip((p.name for p in session.outputs), session.run(None, feeds), strict=True)
            )
            feeds = {**loaded.arrays, **feeds}
        parts = Parts(model, limits.external_data_root)
        chosen = {"optimize": passes.optimize, "precision": precision, **mix._asdict()}
        options = {key: kept for key, kept in chosen.items() if kept != _DEFAULTS[key]}
        engines = Engines(options, limits._replace(external_data_root=parts.folder), threads)
        with progress(f"comparing {model.name}") as advance:
            search = Search(parts, engines, feeds, tolerance, steps, advance)
            results = engines.theirs(parts.proto, feeds)
            theirs = dict(zip(parts.outputs, results, strict=True))
            rows = {name: search.compare(name, ours[name], theirs[name]) for name in parts.outputs}
            worst = next((name for name, row in rows.items() if row.beyond), None)
            found = None if worst is None else search.first(worst)
        script = None if found is None else _saved(found, save, options)
        if as_json:
            data = {"model": model.stem, "with": ENGINE, "seeded_inputs": made_up}
            print_json({**data, "tried": search.probes, **_dict(rows, found, script)})
        else:
            for name in made_up:
                print(f"{name}: seeded random numbers (give --input {name}=FILE for your own)")
            print("\n".join(_lines(rows, found, script)))
        if worst is not None:
            raise typer.Exit(DIFFERENT)


def _saved(found: Found, folder: Path | None, options: Mapping[str, Any]) -> Path:
    """Write a reproduction: ``part.onnx``, ``inputs.npz`` and ``reproduce.py``.

    Args:
        found: the difference.
        folder: the folder to write to; None is a new temporary one.
        options: the options of VTensor's session.

    Returns:
        The path of the program.

    Raises:
        InputError: the folder cannot be written to.
    """
    text = "".join(f", {key}={kept!r}" for key, kept in options.items())
    try:
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="vtensor-compare-"))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "part.onnx").write_bytes(found.part.SerializeToString())
        write_npz(folder / "inputs.npz", found.feeds)
        (script := folder / "reproduce.py").write_text(_SCRIPT.format(options=text), "utf-8")
    except OSError as error:
        raise InputError(f"{folder}: a reproduction cannot be written there: {error}") from error
    return script


def _dict(
    rows: Mapping[str, Difference], found: Found | None, script: Path | None
) -> dict[str, Any]:
    """Return the result as data; infinite errors are None, since JSON has no infinity."""
    first = None
    if found is not None and script is not None:
        step, judged = found.step, found.judgement
        first = {
            "value": found.value,
            "nodes": [{"name": name, "operator": op} for name, op in found.nodes],
            "difference": _difference_dict(found.difference),
            "alone": _difference_dict(found.alone),
            "step": None if step is None else {key: step[key] for key in _STEP},
            "float64": judged and {**_finite(asdict(judged)), "nearer": judged.nearer},
            "reproduction": str(script),
        }
    outputs = [{"name": name, **_difference_dict(row)} for name, row in rows.items()]
    equal = not any(row.beyond for row in rows.values())
    return {"equal": equal, "outputs": outputs, "first": first}


#: What ``--json`` says about a step, a part of what ``vtensor plan --json`` says.
_STEP = ("node", "operator", "library", "kernels", "inputs", "outputs")


def _difference_dict(row: Difference) -> dict[str, Any]:
    return _finite(asdict(row))


def _finite(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: None if kept == np.inf else kept for key, kept in row.items()}


def _lines(
    rows: Mapping[str, Difference], found: Found | None, script: Path | None
) -> Iterator[str]:
    """Yield the result as text."""
    for name, row in rows.items():
        yield f"{'differs' if row.beyond else 'agrees':<8} {name}: {row}"
    if not any(row.beyond for row in rows.values()):
        return
    if found is None or script is None:
        yield "the engines agree on each of these outputs in a model that has no other output"
        return
    nodes = ", ".join(f"{op} {name!r}" for name, op in found.nodes)
    yield f"first difference: value {found.value!r} of {nodes}"
    yield f"  in the model: {found.difference}"
    yield f"  {counted(len(found.part.graph.node), 'node')} alone: {found.alone}"
    if found.step is not None:
        step = found.step
        kernels = " + ".join(step["kernels"])
        layouts = (", ".join(row["layout"] for row in step[key]) for key in ("inputs", "outputs"))
        call = f"{step['operator']} on {step['library']} {kernels}"
        yield f"  VTensor: {call}, {' -> '.join(layouts)}"
    if (judged := found.judgement) is None:
        yield "  float64: no evaluator can run it"
    else:
        errors_of = f"VTensor is off by {judged.ours:.2e}, ONNX Runtime by {judged.theirs:.2e}"
        nearer = {"vtensor": "VTensor", "onnxruntime": "ONNX Runtime"}.get(judged.nearer, "neither")
        yield f"  float64 ({judged.evaluator}): {errors_of}; nearer: {nearer}"
    yield f"to reproduce, in {script.parent}:"
    yield from (f"  {line}" for line in script.read_text("utf-8").splitlines() if line)
