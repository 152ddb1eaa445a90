"""Write the README's table of speed from the rows in ``eval/results``.

``python -m eval.documents.speed_table``. Each row answers a question of a user: the geometric mean
over all models of the peer's time divided by VTensor's, and on how many models VTensor is slower.
Every figure comes from a file in ``eval/results``; its row names the command and the date of the
measurement. A mean leaves out only the models that an engine refuses.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import fmean, geometric_mean, median
from typing import Any

from eval.figures.claims import MIX, mean_interval
from eval.figures.latency import like_for_like
from eval.figures.timing import SESSION, TOLERANT
from eval.figures.worth import CAP
from eval.kernels.forms import logs_of
from eval.markdown import percent
from eval.narrow.narrow_types import BF16, US
from eval.narrow.narrow_types import logs_of as narrow_logs
from eval.store import RESULTS, Row, instructions

README = Path(__file__).parents[2] / "README.md"
#: The marks around the table in the README.
BEGIN, END = "<!-- begin: python -m eval.documents.speed_table -->", "<!-- end -->"
#: The engines that have a column: by the engine's name in measured rows, the column's head.
PEERS = {"openvino": "OpenVINO", "onnxruntime": "ONNX Runtime"}

#: By name of a peer, a list: for each model, the peer's time divided by VTensor's.
Ratios = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Question:
    """A row of the table.

    Attributes:
        text: what a user wants to know.
        rows: the name of the file in ``eval/results``, without its suffix.
        command: the module, with options, that measures the rows.
        ratios: computes the ratios from the rows of the file.
    """

    text: str
    rows: str
    command: str
    ratios: Callable[[Iterable[Row]], Ratios]


def by_peer(pairs: Iterable[tuple[str, float | None]]) -> Ratios:
    """Return a list of ratios for each peer in ``PEERS``.

    Args:
        pairs: (peer, ratio); one with another peer, or with None for the ratio, is left out.
    """
    ratios: dict[str, list[float]] = {peer: [] for peer in PEERS}
    for peer, ratio in pairs:
        if peer in ratios and ratio:
            ratios[peer].append(ratio)
    return ratios


def timed(ours: str) -> Callable[[Iterable[Row]], Ratios]:
    """Return a function from measured rows to ratios: each peer's time divided by VTensor's.

    A peer's row is compared with VTensor's row for the same network and mix of libraries. Only rows
    of batch 1 and without a cap on the instruction set count.

    Args:
        ours: the name of one of VTensor's engines in the rows.
    """

    def ratios(rows: Iterable[Row]) -> Ratios:
        uncapped = [row for row in rows if row["cap"] == "max" and row["batch"] == 1]
        ours_by_network = {
            (row["network"], row["mix"]): row for row in uncapped if row["engine"] == ours
        }
        return by_peer(
            (row["engine"], math.exp(-float(logs.mean())))
            for row in uncapped
            if (mine := ours_by_network.get((row["network"], row["mix"])))
            and (logs := logs_of(mine, row)) is not None
        )

    return ratios


def raced(group: str) -> Callable[[Iterable[Row]], Ratios]:
    """Return a function from rows of ``eval.today`` to each peer's ratios in one group of races.

    ``group`` is a key of ``eval.today.GROUPS``: the engines' precision.
    """

    def ratios(rows: Iterable[Row]) -> Ratios:
        in_group = (row for row in rows if row["group"] == group)
        return by_peer((row["peer"], row["ratio"] and row["ratio"]["value"]) for row in in_group)

    return ratios


def narrowed(kind: str, ours: str) -> Callable[[Iterable[Row]], Ratios]:
    """Return a function from rows of ``eval.narrow`` to each peer's ratios on one kind of networks.

    Args:
        kind: a key of ``eval.narrow.narrow_types.KINDS``.
        ours: the name of one of VTensor's engines in the rows.
    """

    def ratios(rows: Iterable[Row]) -> Ratios:
        races: dict[object, dict[str, Row]] = {}
        for row in rows:
            if row["kind"] == kind:
                key = row["model"], row["conversion"], row["rows"]
                races.setdefault(key, {})[row["engine"]] = row
        return by_peer(
            (peer, math.exp(-float(logs.mean())))
            for race in races.values()
            for peer in PEERS
            if (logs := narrow_logs(race, ours, (peer,))) is not None
        )

    return ratios


def inverse(*columns: str) -> Callable[[Iterable[Row]], Ratios]:
    """Return a function from measured rows to ratios, each 1 divided by a number in the row.

    This number is VTensor's time divided by the peer's.

    Args:
        columns: names of the number's column; the first that a row has is read.
    """

    def ratios(rows: Iterable[Row]) -> Ratios:
        values = ((row["engine"], _first(row, columns)) for row in rows)
        return by_peer((engine, 1 / value if value else None) for engine, value in values)

    return ratios


def _first(row: Row, columns: Sequence[str]) -> float | None:
    return next((row[name] for name in columns if row.get(name)), None)


QUESTIONS = (
    Question(
        "The paper's twelve networks, default settings",
        "peers",
        "eval.figures.peers",
        timed(SESSION),
    ),
    Question(
        "The same, `tune=True`: kernels chosen by measuring, errors up to 1e-5 allowed",
        "forms",
        "eval.kernels.forms --full",
        timed(TOLERANT),
    ),
    Question("Models of today, default settings", "today", "eval.today", raced("f32")),
    Question("The same, OpenVINO as installed (bf16)", "today", "eval.today", raced("default")),
    Question(
        '`precision="bf16"`, OpenVINO as installed (bf16)',
        "narrow",
        "eval.narrow",
        narrowed("bf16", BF16),
    ),
    Question(
        "Networks that ONNX Runtime's quantiser made 8 bits wide",
        "narrow",
        "eval.narrow",
        narrowed("int8", US),
    ),
    Question("Networks converted to f16", "narrow", "eval.narrow", narrowed("f16", US)),
    Question(
        "Language models with weights of 4 bits", "narrow", "eval.narrow", narrowed("bits4", US)
    ),
    Question(
        "Convolutional models of today, `tune=True`",
        "forms_today",
        "eval.kernels.forms_today --full",
        timed(TOLERANT),
    ),
    Question(
        "Process start to first answer, plan in VTensor's cache",
        "start",
        "eval.start",
        inverse("wall_ratio"),
    ),
    Question(
        "The same, nothing cached",
        "start",
        "eval.start",
        inverse("cold_wall_ratio"),
    ),
    Question(
        "First run of a new shape, after VTensor has run 3 s and the peers twice",
        "shapes",
        "eval.shapes",
        inverse("ratio"),
    ),
    Question(
        "New shapes directly after a process's first run, plans in VTensor's cache",
        "shapes",
        "eval.shapes",
        inverse("later_process", "at_once"),
    ),
    Question(
        "The same, nothing cached",
        "shapes",
        "eval.shapes",
        inverse("first_process", "without_cache"),
    ),
)


def write_table(folder: Path = RESULTS) -> Iterator[str]:
    """Yield the lines of the README's table, then the text below it, from measured rows.

    The rows are those in the files of ``folder``. A question that no row answers is left out. If
    none is answered, nothing is yielded.
    """
    runs: dict[str, Mapping[str, Any]] = {}
    lines: list[str] = []
    for question in QUESTIONS:
        measured = read(folder, question.rows)
        ratios = question.ratios(measured["rows"])
        if any(ratios.values()):
            runs |= {run["when"]: run for run in measured["runs"]}
            cells = " | ".join(cell(ratios[peer]) for peer in PEERS)
            command = f"`python -m {question.command}`"
            lines.append(f"| {question.text} | {cells} | {command} | {_dates(measured['runs'])} |")
    if lines:
        heads = " | ".join(PEERS.values())
        yield f"| peer's time / VTensor's | {heads} | command | date |"
        yield f"|---|{'--:|' * len(PEERS)}---|---|"
        yield from lines
        yield ""
        yield " ".join(
            filter(None, (_machines([*runs.values()]), installed(folder), gained(folder)))
        )


def read(folder: Path, name: str) -> Mapping[str, list[Any]]:
    """Return the ``runs`` and ``rows`` of the file ``name.json``; empty ones if it is absent."""
    file = folder / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else {"runs": [], "rows": []}


def cell(ratios: Sequence[float]) -> str:
    """Return the text of a cell: the geometric mean of ratios, and how many of them are below 1.

    Below 1, VTensor is slower. Without ratios the text is empty.

    >>> cell([0.5, 2.0]), cell([])
    ('1.00 (1 of 2)', '')
    """
    if not ratios:
        return ""
    return f"{geometric_mean(ratios):.2f} ({sum(ratio < 1 for ratio in ratios)} of {len(ratios)})"


def _dates(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the days on which the first and the last run began, as text."""
    days = sorted({date.fromisoformat(run["when"][:10]) for run in runs})
    last = f"{days[-1].day} {days[-1]:%b %Y}"
    return last if len(days) == 1 else f"{days[0].day} {days[0]:%b} to {last}"


def _machines(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the sentence on the machines of runs, and on how many runs began under other load."""
    machines = dict.fromkeys(
        f"{run['machine']['processor']}, {run['machine']['processors']} cores,"
        f" {instructions(run['machine'])}"
        for run in runs
    )
    loaded = sum(run["machine"]["load_average"] > 1 for run in runs)
    return (
        f"Machine: {'; '.join(machines)}, at a load above 1 when {loaded} of the"
        f" {len(runs)} measuring commands began, so times are noisy."
    )


def installed(folder: Path = RESULTS) -> str:
    """Return the sentence on how far results of OpenVINO as installed differ from VTensor's.

    The sentence is empty if they were not compared.
    """
    rows = [row for row in read(folder, "today")["rows"] if row["group"] == "default"]
    apart = [row["difference"] for row in rows if row["difference"] and row["peer"] in PEERS]
    if not apart:
        return ""
    return (
        "As installed, OpenVINO computes in bf16 here: its outputs differ"
        f" from VTensor's by up to {max(apart):.0e} of the largest one, {median(apart):.0e} in the"
        " median over models."
    )


def gained(folder: Path = RESULTS) -> str:
    """Return the sentence on the time that is gained by removing conversions alone.

    The sentence is empty if the paper's setting was not measured.
    """
    rows = [row for row in read(folder, "timings")["rows"] if row["batch"] == 1]
    gains = {
        setting: [gain.median for levels in networks.values() if (gain := levels.get("ewo"))]
        for setting, networks in like_for_like(rows).items()
    }
    if not (ours := gains.pop((CAP, MIX), [])):
        return ""
    low, high = mean_interval(ours)
    text = (
        "What do better layouts gain by themselves? With the same kernels, the twelve networks"
        f" take {percent(fmean(ours))} less time in the mean in the paper's setting (SSE4.1,"
        " TensorFlow 1.14's libraries; 95 % interval"
        f" {percent(low)} to {percent(high)})"
    )
    if others := [fmean(values) for values in gains.values() if values]:
        text += f", and {percent(min(others))} to {percent(max(others))} in {len(others)} others"
    return f"{text} (`python -m eval.figures.latency`)."


def update(text: str, lines: Iterable[str]) -> str:
    """Return the README's text with ``lines`` between its two marks."""
    block = "\n".join([BEGIN, *lines, END])
    replaced, count = re.subn(
        f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: block, text, flags=re.DOTALL
    )
    assert count == 1, f"the README has {BEGIN} {count} times"
    return replaced


def main() -> None:
    """Rewrite the table of speed in the README."""
    text = README.read_text(encoding="utf-8")
    README.write_text(update(text, write_table()), encoding="utf-8")


if __name__ == "__main__":
    main()
