"""Writes a plan as picture files: an SVG picture, and a page for browsers."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from resolver.lowered import LoweredGraph
from vtensor.errors import InputError
from vtensor.language.wording import reason
from vtensor.pictures.page import html_page
from vtensor.pictures.scene import Scene, make_scene
from vtensor.pictures.svg import svg_picture
from vtensor.report import MEGABYTE
from vtensor.runtime.execution.plan import Plan


def write_pictures(
    plans: Sequence[Plan], name: str, *, html: Path | None = None, svg: Path | None = None
) -> list[Path]:
    """Draw plans before and after the optimiser's passes, or once if they changed nothing.

    Args:
        plans: a session's plans, one for each segment.
        name: the title of the pictures.
        html, svg: the files of a page for browsers and of a picture; None writes none.

    Returns:
        The files that were written.

    Raises:
        InputError: a file cannot be written; its former content is unchanged.
    """
    outputs: list[tuple[Path | None, Callable[[Sequence[Scene]], str]]] = [
        (html, lambda scenes: html_page(name, scenes)),
        (svg, svg_picture),
    ]
    files = [(file, text) for file, text in outputs if file is not None]
    scenes = list[Scene]()
    for number, plan in enumerate(plans if files else (), 1):
        part = f"segment {number} of {len(plans)}, " if len(plans) > 1 else ""
        scenes += [replace(scene, title=f"{part}{scene.title}") for scene in plan_scenes(plan)]
    for file, text in files:
        write_file(file, text(scenes))
    return [file for file, _ in files]


def plan_scenes(plan: Plan) -> tuple[Scene, ...]:
    """Return the scenes of a plan's graph before and after the optimiser's passes.

    If both look alike, only the second is returned.
    """
    kernels: dict[str, list[str]] = defaultdict(list)
    for step in plan.recorded:
        kernels[step.node].append(step.kernel)
    passes = ", ".join(plan.passes)
    after = make_scene(_title(f"after {passes}", plan.graph), plan.graph, kernels)
    before = make_scene(_title("before, as resolved", plan.resolved), plan.resolved)
    if before.appearance == after.appearance:
        unchanged = f"{passes} changed nothing" if passes else "no passes ran"
        return (replace(after, title=_title(f"resolved, {unchanged}", plan.graph)),)
    return before, after


def _title(text: str, graph: LoweredGraph) -> str:
    transforms = list(graph.transforms())
    values = graph.values
    moved = sum(values[node.input].nbytes + values[node.output].nbytes for node in transforms)
    noun = "Transform" if len(transforms) == 1 else "Transforms"
    return f"{text}: {len(transforms)} {noun} each run, {moved / MEGABYTE:.2f} MB"


def write_file(file: Path, text: str) -> None:
    """Write a text to a file as a whole: to a temporary file first, which is then renamed.

    Raises:
        InputError: the file cannot be written; its former content is unchanged.
    """
    try:
        if file.exists() and not file.is_file():
            raise InputError(f"{file}: cannot be written: it is no file")
        temporary = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be written: {reason(error)}") from error
