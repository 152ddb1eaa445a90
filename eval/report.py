"""``eval/results/REPORT.md``: all sections, from what was measured and from nothing else.

``SECTIONS`` is the registry: a new section is a module (``eval/experiment.py`` says what it has)
and a line here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from eval.experiment import Experiment, Store
from eval.figures import claims
from eval.figures.paper import paper
from eval.markdown import table
from eval.store import Row, instructions

#: The modules of all sections, in the order in which they are measured and told: the paper's first.
SECTIONS = (
    "eval.networks.table1",
    "eval.figures.loc",
    "eval.figures.latency",
    "eval.figures.stddev",
    "eval.figures.conversions",
    "eval.figures.overhead",
    "eval.figures.batch",
    "eval.figures.breakdown",
    "eval.joint",
    "eval.kernels.forms",
    "eval.kernels.forms_today",
    "eval.kernels.layers",
    "eval.profiles",
    "eval.start",
    "eval.shapes",
    "eval.memory",
    "eval.busy",
    "eval.today",
)

REFERENCE = "VTensor: Using Virtual Tensors to Build a Layout-Oblivious AI Programming Framework"


def experiments(only: Sequence[str] = ()) -> list[Experiment]:
    """The modules of the sections, or of some of them, by the last part of their names."""
    wanted = [name for name in SECTIONS if not only or name.rpartition(".")[2] in only]
    return [cast("Experiment", import_module(name)) for name in wanted]


def write(store: Store) -> Path:
    """Write the report with what is known now; a section without rows says so."""
    path = store.folder / "REPORT.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(part.strip() for part in _parts(store) if part.strip()) + "\n")
    return path


def _parts(store: Store) -> Iterator[str]:
    yield "# The paper's experiments, repeated"
    yield (
        f"*{REFERENCE}*, sections 6 and 7.2. Written by `python -m eval` from the rows in this"
        " folder: every table and plot names the file that holds its rows, as CSV and JSON (which"
        " has the time of every single run), and every row the run that measured it. The paper's"
        " figures are those that its text states ([paper.toml](../data/paper.toml)); its bars are"
        " not read off pictures."
    )
    runs, names = _runs(store)
    yield "## Runs"
    yield from _machines(runs)
    yield (
        f"The paper's machine: {paper('machine', 'processor')}; TensorFlow"
        f" {paper('machine', 'tensorflow')}, MKL-DNN {paper('machine', 'mkl_dnn')}. Absolute times"
        " do not compare; gains, counts and their order do. *sse41* caps kernels at what that"
        f" machine has. *baseline* is `eval/layout_aware`: the"
        " same operators on the same kernels and threads, written so that each looks after layouts"
        " itself."
    )
    yield "## Confirmed or refuted"
    yield "\n".join(claims.lines(store))
    for experiment in experiments():
        file = names.get(experiment.NAME)
        yield f"## {experiment.TITLE}"
        if file is None:
            yield "Not measured yet."
            continue
        yield f"Rows: [{experiment.NAME}.csv]({experiment.NAME}.csv), of {file}."
        yield from experiment.section(store)


def _runs(store: Store) -> tuple[list[Mapping[str, Any]], dict[str, str]]:
    """All runs of all tables, by time; and of each table which of them it is from."""
    found, files = dict[str, Mapping[str, Any]](), dict[str, str]()
    tables = {one.NAME: store.table(one.NAME, ()) for one in experiments()}
    for one in tables.values():
        found |= {run["when"]: run for run in one.runs}
    order = sorted(found)
    for name, one in tables.items():
        if one.runs:
            numbers = sorted({order.index(run["when"]) + 1 for run in one.runs})
            files[name] = f"run {', '.join(map(str, numbers))}"
    return [found[when] for when in order], files


def _machines(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    heads = ["run", "began", "scope", "seed", "processor", "instructions", "threads"]
    heads += ["load before", "system"]
    lines: list[list[object]] = []
    for number, run in enumerate(runs, 1):
        about: Row = run["machine"]
        load = f"{about['load_average']:.1f}"
        where = (about["processor"], instructions(about), about["processors"])
        lines.append(
            [number, run["when"], run["scope"], run["seed"], *where, load, about["system"]]
        )
    yield table(heads, lines)
    said = dict.fromkeys(", ".join(f"{k} {v}" for k, v in run["versions"].items()) for run in runs)
    yield "Versions: " + "; ".join(said) + "."
    libraries = (run["machine"]["libraries"] for run in runs)
    shown = dict.fromkeys(", ".join(f"{k} {v}" for k, v in one.items()) for one in libraries)
    yield "Libraries: " + "; ".join(shown) + "."
    busy = [str(number) for number, run in enumerate(runs, 1) if run["machine"]["load_average"] > 1]
    if busy:
        yield (
            f"**The load was above 1 when run {', '.join(busy)} began: if it was not our own"
            " installing, others used the machine, and its times are noisy.**"
        )
