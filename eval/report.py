"""Write ``eval/results/REPORT.md``: the first page, the speed, and a section for each experiment.

Every figure comes from the rows in ``eval/results``. ``SECTIONS`` is the registry: a new section is
a module (``eval/experiment.py`` has its interface) and a line here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from eval.documents.speed_table import write_table
from eval.experiment import Experiment, Store
from eval.figures import claims, worth
from eval.figures.paper import paper
from eval.markdown import table
from eval.store import Row, instructions

#: The modules of all sections in the order of the report, the paper's first, and the minutes that
#: each is allowed without ``--full``: what is not measured until the sum of its minutes and those
#: before is over waits for the next run. Sections with 0 are measured after those with minutes, in
#: the time that is left; those whose rows another section measures need none.
SECTIONS = {
    "eval.networks.table1": 0.5,
    "eval.figures.loc": 0.5,
    "eval.figures.latency": 46.5,
    "eval.figures.stddev": 0.0,
    "eval.figures.conversions": 4.0,
    "eval.figures.parts": 0.0,
    "eval.figures.shares": 9.0,
    "eval.figures.overhead": 3.5,
    "eval.figures.batch": 6.0,
    "eval.figures.breakdown": 0.0,
    "eval.figures.peers": 0.0,
    "eval.joint": 0.0,
    "eval.kernels.forms": 0.0,
    "eval.kernels.forms_today": 0.0,
    "eval.kernels.layers": 0.0,
    "eval.profiles": 0.0,
    "eval.start": 0.0,
    "eval.shapes": 0.0,
    "eval.memory": 0.0,
    "eval.busy": 0.0,
    "eval.today": 0.0,
    "eval.models_shipped.shipped": 0.0,
    "eval.narrow.narrow_types": 0.0,
    "eval.gap.gap": 18.0,
}

REFERENCE = "VTensor: Using Virtual Tensors to Build a Layout-Oblivious AI Programming Framework"


def experiments(only: Sequence[str] = ()) -> list[Experiment]:
    """Return the modules of the report's sections: those named in ``only``, or all if it is empty.

    A name is the last part of the module's, such as ``latency``.
    """
    wanted = [name for name in SECTIONS if not only or name.rpartition(".")[2] in only]
    return [cast("Experiment", import_module(name)) for name in wanted]


def minutes(experiment: Experiment) -> float:
    """Return the minutes that a section is allowed."""
    return SECTIONS[next(name for name in SECTIONS if import_module(name) is experiment)]


def write(store: Store) -> Path:
    """Write the report from the rows of a store, and return its path.

    A section that has no rows says that it was not measured yet.
    """
    path = store.folder / "REPORT.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(part.strip() for part in _parts(store) if part.strip()) + "\n")
    return path


def _parts(store: Store) -> Iterator[str]:
    """Yield the report's paragraphs: claims and speed, the experiments, and the machines last."""
    runs, names = _runs(store)
    yield "# The paper's experiments, repeated"
    yield (
        f"*{REFERENCE}*, sections 6 and 7.2, repeated with this implementation, and compared with"
        " other engines."
    )
    yield (
        "A *conversion* copies a tensor into another memory layout, for a kernel that requires"
        " this layout. The paper's operators do not mention layouts: a resolver (DLR) chooses them"
        " and inserts conversions, and passes (LHO and EWO, together LOO) remove some. The"
        " *baseline*"
        " is the same operators on the same kernels and threads, written so that each handles"
        " layouts itself (`eval/layout_aware`). *sse41*, *avx2* and *max* are the most modern"
        " instructions that kernels may use: those of the paper's machine, later ones, all."
    )
    yield from worth.answers(store)
    yield "## The paper's claims"
    yield (
        "The paper compares VTensor with TensorFlow"
        f" {paper('machine', 'tensorflow')} and MKL-DNN {paper('machine', 'mkl_dnn')} on"
        f" {paper('machine', 'processor')}. *sse41* caps kernels at that machine's instruction set,"
        " *tensorflow* is its mix of libraries: BiasAdd, Pad and Mean on Eigen, the rest on oneDNN."
        " Absolute times do not compare; gains, counts and their order do. A claim is *not shown*"
        f" if its 95 % interval allows both verdicts. {claims.summary(store)}"
    )
    heads = ["claim", "measured here", "verdict", "why"]
    yield table(heads, claims.rows(store), texts=4)
    yield "What was expected of this repository:"
    yield table(heads, claims.expectations(store), texts=4)
    if lines := list(write_table(store.folder)):
        yield "## Speed beside other engines"
        yield (
            "Geometric means over models: above 1, VTensor is faster; in brackets, on how many"
            " models it is slower."
        )
        yield "\n".join(lines)
    yield "## How to read this report"
    yield (
        "`python -m eval` writes it from the rows in this folder. Every table and plot names the"
        " file that holds its rows, as CSV and JSON (with the time of every single run), and the"
        " run that measured them; the last section has machine and versions of each run. The"
        " paper's figures are those that its text states ([paper.toml](../data/paper.toml));"
        " its bars are not read off pictures."
    )
    for experiment in experiments():
        numbers = names.get(experiment.NAME)
        yield f"## {experiment.TITLE}"
        if numbers is None:
            yield "Not measured yet."
            continue
        yield f"Rows: [{experiment.NAME}.csv]({experiment.NAME}.csv), of {numbers}."
        yield from experiment.section(store)
    yield "## Runs"
    yield from _machines(runs)


def _runs(store: Store) -> tuple[list[Mapping[str, Any]], dict[str, str]]:
    """Return the runs of all tables, in order of time, and the numbers of each table's runs.

    The latter are a text for each table, by its name, such as ``run 1, 2``. Runs are numbered from
    1.
    """
    runs, numbers_of = dict[str, Mapping[str, Any]](), dict[str, str]()
    tables = {section.NAME: store.table(section.NAME, ()) for section in experiments()}
    for rows in tables.values():
        runs |= {run["when"]: run for run in rows.runs}
    order = sorted(runs)
    for name, rows in tables.items():
        if rows.runs:
            numbers = sorted({order.index(run["when"]) + 1 for run in rows.runs})
            numbers_of[name] = f"run {', '.join(map(str, numbers))}"
    return [runs[when] for when in order], numbers_of


def _machines(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a table of the runs with their machines, paragraphs on versions, and a warning.

    The warning names the runs that began while the machine's load was above 1.
    """
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
    shown = dict.fromkeys(
        ", ".join(f"{k} {v}" for k, v in versions.items()) for versions in libraries
    )
    yield "Libraries: " + "; ".join(shown) + "."
    busy = [str(number) for number, run in enumerate(runs, 1) if run["machine"]["load_average"] > 1]
    if busy:
        yield (
            f"**The system's load was above 1 when run {', '.join(busy)} began: unless that was"
            " the installation, other programs used the machine, and times are noisy.**"
        )
