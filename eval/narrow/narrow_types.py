"""Narrow types: 8-bit integers, f16, bf16 and 4-bit weights, beside the peers.

``python -m eval.narrow``. Networks are converted by ONNX Runtime's quantiser and its f16 converter
(``quantised.py``). VTensor runs each converted network and the same network in f32, in turns
with ONNX Runtime and with OpenVINO as installed, which computes f32 in bf16 if the processor
supports that. The number in brackets after a time is the largest difference, relative to the
largest output, from ONNX Runtime without graph optimisations: on the converted network for integers
and 4-bit weights, on the network in f32 for f16 and bf16. *at the error* is VTensor with
``tune=True`` and OpenVINO's error on these inputs as the tolerance, *at a hundredth* with a
hundredth of it.
*Transforms* are the conversions in a run of VTensor, *Python* the steps of a run that call back
into Python. A *mark* is a geometric mean of ratios of VTensor's time to another's.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from textwrap import shorten
from typing import Any, NamedTuple

from eval.drawing import bars, drawn
from eval.experiment import Scope, Store, selecting
from eval.markdown import milliseconds, picture, table, told
from eval.narrow.quantised import BITS4, DYNAMIC, STATIC, converted, source
from eval.networks import NAMES
from eval.store import Row
from optimizer.pipeline import LEVELS
from vtensor.benchmark.messages import Finished
from vtensor.benchmark.peer import Precision, Task, peer_at
from vtensor.benchmark.race import Contender, RaceSettings, take_turns
from vtensor.benchmark.report import Case, row_of
from vtensor.benchmark.summary import Logs, log_ratios, mean_ratio
from vtensor.commands.bench import PEERS

NAME = "narrow"
TITLE = "Narrow types beside the peers"
KEY = ("kind", "model", "conversion", "rows", "engine", "threads")
ROUNDS, SECONDS, LIMIT_S = 5, 1.0, 1200.0
REFERENCE = "eval.peers.unoptimised:Unoptimised"
#: The reference of a kind is the converted network; of other kinds it is the network in f32.
EXACT = ("int8", "bits4")


@dataclass(frozen=True)
class Engine:
    """An engine of a race.

    Attributes:
        place: the place of its class, ``"package.module:Class"``.
        precision: the element type in which a peer multiplies and adds.
        options: options of VTensor's session.
        plain: whether it runs the network in f32 in place of the converted one.
        share: the session's tolerance, as a share of the error of the engine ``openvino``.
    """

    place: str = "eval.peers.ours:Level"
    precision: Precision = "f32"
    options: Mapping[str, Any] = field(default_factory=dict)
    plain: bool = False
    share: float | None = None

    @property
    def ours(self) -> bool:
        """Whether the engine is VTensor."""
        return self.place == Engine.place


US, WIDE, BF16, ORT, VINO = "vtensor", "vtensor f32", "vtensor bf16", "onnxruntime", "openvino"
VINO_F32, AT_ERROR, AT_HUNDREDTH = "openvino f32", "at the error", "at a hundredth"
#: All engines; those with a ``share`` come after OpenVINO, whose error they need.
ENGINES = {
    US: Engine(),
    WIDE: Engine(plain=True),
    BF16: Engine(options={"precision": "bf16"}),
    ORT: Engine(PEERS["onnxruntime"]),
    VINO: Engine(PEERS["openvino"], "default"),
    VINO_F32: Engine(PEERS["openvino"]),
    AT_ERROR: Engine(options={"tune": True}, share=1.0),
    AT_HUNDREDTH: Engine(options={"tune": True}, share=0.01),
}
#: By kind of narrow type, the engines of its races.
KINDS = {
    "int8": (US, WIDE, ORT, VINO),
    "f16": (US, WIDE, BF16, ORT, VINO, VINO_F32),
    "bf16": (US, BF16, VINO, AT_ERROR, AT_HUNDREDTH),
    "bits4": (US, WIDE, ORT, VINO),
}
#: Networks that are quantised with fixed scales, and with scales of each run.
FIXED = (
    *("mobilenet_v1", "mobilenet_v2", "resnet50", "googlenet", "inception_v3"),
    *("efficientnet_b0", "yolo", "ppocr4_det"),
)
IN_EACH_RUN = ("minilm_sentence", "crnn")
#: Of the conversions with fixed scales, those of the default scope: half of them, in which every
#: two choices meet.
HALF = ("qdq-u8s8-tensor", "qdq-s8s8-channel", "qop-u8s8-channel", "qop-s8s8-tensor")
TODAY = (
    *("vit_small_patch16_224", "swin_tiny_patch4_window7_224", "convnext_tiny", "efficientnet_b0"),
    *("mobilenetv3_large_100", "yolo", "unet", "bert_base", "crnn", "ppocr6_rec"),
)
SOME = ("resnet50", "mobilenet_v2", "inception_v3", "vit_small_patch16_224", "yolo", "bert_base")
HALVES = ("ppocr6_rec", "mobilenet_v2", "efficientnet_b0", "minilm_sentence")
LANGUAGE = ("llama", "neox")
#: Networks without convolutions: the mark of Transforms does not hold for them.
UNCONVOLVED = ("minilm_sentence", "bert_base", *LANGUAGE)


class Subject(NamedTuple):
    """A network in one conversion; ``rows`` is the number of words, 0 for the network's own."""

    kind: str
    model: str
    conversion: str = ""
    rows: int = 0


def _title(subject: Subject) -> str:
    return " ".join(map(str, filter(None, subject)))


def subjects(scope: Scope) -> list[Subject]:
    """Return what a scope measures.

    The scope's ``only`` has names of kinds, models and conversions: of each of the three of which
    it has a name, only what it names is measured.
    """
    wanted = _all_subjects(scope)
    for place in range(3):
        if named := {subject[place] for subject in wanted} & {*scope.only}:
            wanted = [subject for subject in wanted if subject[place] in named]
    return wanted


def _all_subjects(scope: Scope) -> list[Subject]:
    if not scope.peers:
        return [Subject("int8", name, HALF[0]) for name in scope.networks]
    every = scope.every_model
    fixed = [(name, how) for name in FIXED for how in (STATIC if every else HALF)]
    wide = dict.fromkeys((*NAMES, *TODAY) if every else SOME)
    return [
        *(Subject("int8", name, how) for name, how in fixed),
        *(Subject("int8", name, how) for name in IN_EACH_RUN for how in DYNAMIC),
        *(Subject("f16", name, "f16") for name in HALVES),
        *(Subject("bf16", name) for name in wide),
        *(Subject("bits4", name, how, n) for name in LANGUAGE for how in BITS4 for n in (1, 128)),
    ]


def measure(scope: Scope, store: Store) -> None:
    """Time the networks whose rows the store lacks, if ONNX Runtime is there to convert them.

    Without the scope's ``peers``, it is a small network in few engines.
    """
    if peer_at(PEERS[ORT]).absent():
        return
    kept, wanted = store.table(NAME, KEY), subjects(scope)
    for number, subject in enumerate(wanted):
        engines = [
            name for name in KINDS[subject.kind] if scope.peers or ENGINES[name].ours or name == ORT
        ]
        keys = [{**subject._asdict(), "engine": name, "threads": scope.threads} for name in engines]
        if store.late or not store.missing(kept, keys):
            continue
        title = _title(subject)
        store.advance(f"{title} is made", number, len(wanted))
        if (case := source(subject.model, scope.size)) is None:
            continue
        said = _teller(store, title, number, len(wanted))
        rows = timed(subject, case, engines, scope, said)
        kept.add({**key, **row} for key, row in zip(keys, rows, strict=True))


def _teller(store: Store, title: str, number: int, count: int) -> Any:
    return lambda text: store.advance(f"{title}: {text}", number, count)


def timed(
    subject: Subject, case: Case, engines: Sequence[str], scope: Scope, said: Any
) -> list[Row]:
    """Load a network in all engines, compare their outputs with the reference's, and time them.

    Args:
        subject: the conversion.
        case: the network in f32.
        engines: names of ``ENGINES``.
        scope: gives the number of threads; without ``peers`` there are few runs.
        said: called with a text that says what happens next.

    Returns:
        A row for each engine.
    """
    feeds = case.feeds
    if subject.rows:
        feeds = {name: array[:, : subject.rows] for name, array in feeds.items()}
    wide = Task(case.model, feeds, scope.threads, "f32")
    task = replace(wide, model=converted(case, subject.conversion)) if subject.conversion else wide
    seconds = SECONDS if scope.peers else 0.0
    settings = RaceSettings(scope.threads, ROUNDS, seconds, LIMIT_S, scope.seed)
    contenders = [_contender(name) for name in engines]
    with ExitStack() as stack:
        oracle = Contender("reference", REFERENCE, "f32", LIMIT_S)
        stack.callback(oracle.close)
        oracle.enter(task if subject.kind in EXACT else wide)
        oracle.close()
        by = dict(zip(engines, contenders, strict=True))
        for name, each in by.items():
            stack.callback(each.close)
            said(f"{name} loads")
            engine = ENGINES[name]
            if engine.share is not None:
                error = by[VINO].difference or 0.0
                stated = {"tolerance": error * engine.share, "calibrate": task.feeds}
                each.options = {**each.options, "told": {**engine.options, **stated}}
            each.enter(wide if engine.plain else task)
            if oracle.loaded:
                each.agree(oracle.loaded)
        take_turns(contenders, settings, said)
        for each in contenders:
            if each.worker:
                each.finished = each.ask(None, Finished)
    return [row_of(each, len(each.rounds) == ROUNDS) for each in contenders]


def _contender(name: str) -> Contender:
    engine, options = ENGINES[name], dict[str, Any]()
    if engine.ours:
        options = {"optimize": LEVELS["all"], "mix": "priority", "told": engine.options}
    # Any finite error is accepted: it stands beside the time.
    return Contender(
        name, engine.place, engine.precision, LIMIT_S, options=options, bound=sys.float_info.max
    )


class Mark(NamedTuple):
    """A bound on the geometric mean of ratios of one engine's time to that of others.

    Attributes:
        says: the mark in words.
        kind: the kind of narrow type.
        ours: the engine whose time is divided.
        theirs: the engines by whose time it is divided: the shortest of a network.
        most: the largest accepted mean.
        rows: only networks with this number of words; None is any.
        each: whether the largest ratio of a network is meant in place of the mean.
    """

    says: str
    kind: str
    ours: str
    theirs: tuple[str, ...]
    most: float
    rows: int | None = None
    each: bool = False


MARKS = (
    Mark("int8 beside the better peer", "int8", US, (ORT, VINO), 1.0),
    Mark("int8 beside f32, the slowest", "int8", US, (WIDE,), 1.0, each=True),
    Mark("f16 beside ONNX Runtime", "f16", US, (ORT,), 1.0),
    Mark("f16 beside OpenVINO in f32", "f16", US, (VINO_F32,), 1.0),
    Mark("f16 in bf16 beside OpenVINO as installed", "f16", BF16, (VINO,), 1.0),
    Mark("f16 beside f32", "f16", US, (WIDE,), 1.05),
    Mark("bf16 beside OpenVINO as installed", "bf16", BF16, (VINO,), 0.9),
    Mark("OpenVINO's error as the tolerance", "bf16", AT_ERROR, (VINO,), 0.9),
    Mark("a hundredth of its error", "bf16", AT_HUNDREDTH, (VINO,), 1.0),
    Mark("4-bit weights, one row, beside ONNX Runtime", "bits4", US, (ORT,), 1.0, 1),
    Mark("4-bit weights, 128 rows, beside ONNX Runtime", "bits4", US, (ORT,), 1.0, 128),
)


def section(store: Store) -> Iterator[str]:
    """Yield the report's text: the marks, a table for each kind, and a plot."""
    yield told(__doc__)
    raced = dict[Subject, dict[str, Row]]()
    for row in store.table(NAME, KEY):
        subject = Subject(*(row[name] for name in Subject._fields))
        raced.setdefault(subject, {})[row["engine"]] = row
    yield table(["mark", "at most", "measured", "networks"], _marks(raced))
    for kind, engines in KINDS.items():
        lines = [_line(subject, by) for subject, by in raced.items() if subject.kind == kind]
        if lines:
            heads = [*Subject._fields[1:], *(f"{name}, ms" for name in engines)]
            yield table([kind, *heads[1:], "Transforms", "Python"], lines, texts=2)
    yield from _failures(raced)
    if raced:
        plot(store, raced)
        yield picture(NAME, "VTensor's time in narrow types as a share of others'")


def logs_of(by: Mapping[str, Row], ours: str, theirs: Sequence[str]) -> Logs | None:
    """Return, by round, the logarithm of an engine's time divided by the fastest other's.

    None if it or all others were not timed.

    Args:
        by: the rows of a race, by engine.
        ours: the engine.
        theirs: the others.
    """
    timed = [by[name] for name in theirs if name in by and by[name]["times"]]
    if not timed or ours not in by or not by[ours]["times"]:
        return None
    best = min(timed, key=lambda row: float(row["times"]["median_s"]))
    return log_ratios(by[ours]["rounds_s"], best["rounds_s"])


def _marks(raced: Mapping[Subject, Mapping[str, Row]]) -> Iterator[list[object]]:
    """Yield a line for each mark: its words, its bound, the measured value, and of how many."""
    for mark in MARKS:
        logs = [
            found
            for subject, by in raced.items()
            if subject.kind == mark.kind and mark.rows in (None, subject.rows)
            if (found := logs_of(by, mark.ours, mark.theirs)) is not None
        ]
        if not logs:
            yield [mark.says, mark.most, "not measured", 0]
            continue
        if mark.each:
            logs = [max(logs, key=lambda ratios: float(ratios.mean()))]
        mean = mean_ratio(logs, 0)
        measured = f"{mean.value:.2f} ({mean.low:.2f} to {mean.high:.2f})"
        yield [mark.says, mark.most, measured, len(logs)]
    counts = [
        by[US]["conversions"]
        for subject, by in raced.items()
        if subject.model not in UNCONVOLVED and by[US]["conversions"] is not None
    ]
    most = max(counts, default="not measured")
    yield ["Transforms of a convolutional network, the most", 3, most, len(counts)]


def _line(subject: Subject, by: Mapping[str, Row]) -> list[object]:
    ours = by[US]
    times = (_cell(by.get(name)) for name in KINDS[subject.kind])
    about = [subject.model, subject.conversion, subject.rows or None]
    return [*about, *times, ours["conversions"], ours["python_steps"]]


def _cell(row: Row | None) -> str | None:
    """Return a row's median time in ms and its error, as text, or why it has none."""
    if row is None:
        return None
    if not row["times"]:
        return str(row["status"])
    error = row["difference"]
    return f"{milliseconds(row['times']['median_s'])} ({error:.0e})"


def _failures(raced: Mapping[Subject, Mapping[str, Row]]) -> Iterator[str]:
    """Yield a list of the reasons for which networks were not timed, if there are any."""
    failed = dict[str, list[str]]()
    for subject, by in raced.items():
        for name, row in by.items():
            if row["reason"]:
                reason = shorten(row["reason"], 200, placeholder=" ...")
                failed.setdefault(f"{name}: {reason}", []).append(_title(subject))
    if failed:
        lines = [f"- {reason} ({', '.join(titles)})" for reason, titles in failed.items()]
        yield "Not timed:\n\n" + "\n".join(lines)


def plot(store: Store, raced: Mapping[Subject, Mapping[str, Row]]) -> None:
    """Draw, for each kind, VTensor's narrow time divided by each other engine's."""
    kinds = [kind for kind in KINDS if any(subject.kind == kind for subject in raced)]
    with drawn(store.folder / NAME, len(kinds), size=(12, 3.6)) as panels:
        for kind, axes in zip(kinds, panels, strict=True):
            races = {subject: by for subject, by in raced.items() if subject.kind == kind}
            first = BF16 if kind == "bf16" else US
            series = {
                name: [_share(by, first, name) for by in races.values()]
                for name in KINDS[kind]
                if name != first
            }
            names = [_title(subject).removeprefix(f"{kind} ") for subject in races]
            bars(axes, names, series, title=f"{kind}: below 1 {first} is ahead", ylabel="time")
            axes.axhline(1, color="black", linewidth=0.8)


def _share(by: Mapping[str, Row], ours: str, theirs: str) -> float | None:
    logs = logs_of(by, ours, (theirs,))
    return None if logs is None else math.exp(float(logs.mean()))


main = selecting(sys.modules[__name__])
