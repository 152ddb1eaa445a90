"""Models of today, compared with the peers.

``python -m eval.today`` takes all models, ``make eval`` one or two of each kind. VTensor, ONNX
Runtime and OpenVINO run each model of ``eval/models_today``, written by PyTorch's newer exporter or
found in a package, in turns in f32, after their outputs were found to agree. *ratio* is VTensor's
time divided by the faster peer's, with its 95 % interval; a model counts as slower only if the
whole interval is above 1.05. *Transforms* are the conversions that remain in a run of VTensor. A
second race has OpenVINO as installed: it computes in bf16 if the processor supports that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from statistics import geometric_mean

import typer

from eval.drawing import bars, drawn
from eval.experiment import Scope, Store, command
from eval.markdown import milliseconds, picture, table, told
from eval.models_today import FAMILIES, models_of
from eval.models_today.__main__ import made
from eval.store import Row
from vtensor.benchmark.peer import Precision
from vtensor.benchmark.race import OURS, RaceSettings
from vtensor.benchmark.report import measure as race
from vtensor.commands.bench import PEERS

NAME = "today"
TITLE = "Models of today"
KEY = ("model", "exporter", "group", "peer")
EXPORTER = "dynamo"
#: The report's models: some of each kind.
DEFAULT_MODELS = (
    *("vit_small_patch16_224", "swin_tiny_patch4_window7_224", "convnext_tiny", "efficientnet_b0"),
    *("mobilenetv3_large_100", "yolo", "unet", "bert_base", "gpt2_past", "whisper_encoder"),
    *("crnn", "ppocr6_rec"),
)
#: The peers of each race by their precision. ONNX Runtime's default is f32.
GROUPS: dict[Precision, dict[str, str]] = {
    "f32": PEERS,
    "default": {"openvino": PEERS["openvino"]},
}
#: A model counts as slower if the whole interval of its ratio is above this.
SLOWER = 1.05
ROUNDS, SECONDS, LIMIT_S = 5, 1.0, 300.0


def measure(scope: Scope, store: Store) -> None:
    """Time the models whose rows the store lacks, in turns with the peers, if the scope has any."""
    if not scope.peers:
        return
    kept = store.table(NAME, KEY)
    names = list(models_of(FAMILIES)) if scope.every_model else list(DEFAULT_MODELS)
    settings = RaceSettings(scope.threads, ROUNDS, SECONDS, LIMIT_S, scope.seed)
    us = next(iter(OURS))
    for number, name in enumerate(names):
        key = {"model": name, "exporter": EXPORTER, "peer": us}
        groups = [group for group in GROUPS if store.missing(kept, [{**key, "group": group}])]
        if store.late or not groups:
            continue
        store.advance(f"{name} beside the peers", number, len(names))
        if (case := made(name, EXPORTER)) is not None:
            for group in groups:
                rows = race([case], GROUPS[group], [group], settings, lambda _: None)
                kept.add([{**row, "exporter": EXPORTER} for row in rows])


def section(store: Store) -> Iterator[str]:
    """Yield the table with a line for each model, the plot and the means of the ratios."""
    yield told(__doc__)
    kept = store.table(NAME, KEY)
    lines, ratios, slower = list[Sequence[object]](), list[float](), list[str]()
    for name in dict.fromkeys(row["model"] for row in kept):
        rows = {row["peer"]: row for row in kept.rows(model=name, group="f32")}
        ours = rows.pop(next(iter(OURS)))
        if best := _best(rows.values()):
            interval = best["ratio"]
            value, low, high = (1 / interval[end] for end in ("value", "high", "low"))
            ratios.append(value)
            slower += [name] * (low > SLOWER)
            ratio = f"{value:.2f} ({low:.2f} to {high:.2f})"
        else:
            ratio = None
        times = [_median(row) for row in (ours, *(rows.get(peer) for peer in PEERS))]
        lines.append([name, *times, ratio, ours["conversions"]])
    heads = ["model", "VTensor, ms", *(f"{peer}, ms" for peer in PEERS), "ratio", "Transforms"]
    yield table(heads, lines)
    if ratios:
        plot(store)
        yield picture(NAME, "what peers take of VTensor's time on models of today")
        text = f"{len(slower)} are slower: {', '.join(slower)}" if slower else "none is slower"
        yield f"Geometric mean over {len(ratios)} models {geometric_mean(ratios):.2f}; {text}."
    timed = (row for row in kept.rows(group="default") if row["peer"] in PEERS)
    if installed := [row for row in timed if row["ratio"]]:
        mean = geometric_mean([1 / row["ratio"]["value"] for row in installed])
        apart = max(row["difference"] for row in installed)
        yield (
            f"OpenVINO as installed: VTensor's time divided by its time is {mean:.2f}, geometric"
            f" mean over {len(installed)} models; its outputs differ from VTensor's by up to"
            f" {apart:.1e} of the largest."
        )


def plot(store: Store) -> None:
    """Draw the time of each peer in f32 divided by VTensor's, a group of bars for each model."""
    shares: dict[str, dict[str, float]] = {}
    for row in store.table(NAME, KEY).rows(group="f32"):
        if row["ratio"]:
            shares.setdefault(row["model"], {})[row["peer"]] = row["ratio"]["value"]
    series = {peer: [by_peer.get(peer) for by_peer in shares.values()] for peer in PEERS}
    with drawn(store.folder / NAME, size=(12, 4.4)) as [axes]:
        title, label = "above 1 VTensor is ahead", "time / VTensor's"
        bars(axes, list(shares), series, title=title, ylabel=label)
        axes.axhline(1, color="black", linewidth=0.8)


def _best(rows: Iterable[Row]) -> Row | None:
    timed = [row for row in rows if row["ratio"]]
    return min(timed, key=lambda row: float(row["ratio"]["value"]), default=None)


def _median(row: Row | None) -> str | None:
    if row is None:
        return None
    return milliseconds(row["times"]["median_s"]) if row["times"] else str(row["status"])


if __name__ == "__main__":
    typer.run(command(sys.modules[__name__], every_model=True))
