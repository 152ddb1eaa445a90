"""What removing conversions is worth: the first paragraphs of the report.

Each answers a question from the rows of one experiment, and is left out if that was not measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, geometric_mean

from eval.experiment import Store
from eval.figures import conversions, parts, shares
from eval.figures.claims import MIX, mean_interval
from eval.figures.paper import paper
from eval.figures.timing import gain
from eval.figures.timing import table as timings
from eval.gap import gap
from eval.gap.cells import ESTIMATED, PLAN, RANDOM
from eval.markdown import percent
from eval.store import Row

CAP = "sse41"
#: A network with at most this number of conversions has hardly anything to remove.
FEW = 10
#: The levels between which conversions are gone without any pass.
LEFT = (conversions.RESOLVED, conversions.AWARE)


def answers(store: Store) -> Iterator[str]:
    """Yield the paragraphs, as Markdown."""
    found = {
        "What is it worth to remove conversions?": _worth(store),
        "Why less than in the paper?": _less(store),
        "When does it matter?": _when(store),
        "How good are the layouts that are chosen?": _chosen(store),
    }
    for question, text in found.items():
        if text:
            yield f"**{question}** {text}"


def _worth(store: Store) -> str:
    """Return the gain of the paper's passes, and the parts of it."""
    gains = _gains(store)
    if not gains:
        return ""
    mean, (low, high) = fmean(gains.values()), mean_interval([*gains.values()])
    text = (
        "In the paper's setting (SSE4.1, the libraries of TensorFlow 1.14, batch 1), the paper's"
        f" passes take {percent(mean)} off a run, in the mean of {len(gains)} networks (95 %"
        f" interval {percent(low)} to {percent(high)}); the paper has {paper('latency', 'mean')} %."
    )
    apart = {row["network"]: row for row in parts.cells(store, CAP, MIX)}
    if not apart:
        return text
    taken = {name: parts.converting(row) for name, row in apart.items()}
    before, after = (fmean(pair[side] for pair in taken.values()) for side in (0, 1))
    order = sorted(taken, key=lambda name: taken[name][0])
    ends = (f"{percent(taken[name][0])} ({name})" for name in (order[0], order[-1]))
    some = f" of the {len(apart)} networks that were taken apart" * (len(apart) < len(gains))
    rest = fmean(_kernels(row) for row in apart.values())
    return (
        f"{text} Conversions take {' to '.join(ends)} of the baseline's run{some},"
        f" {percent(before)} in the mean; VTensor leaves {percent(after)}, so removing them gains"
        f" {percent(before - after)}. The rest is due to the same operators in another layout:"
        f" {percent(abs(rest))} {'less' if rest <= 0 else 'more'} time in the mean"
        f"{_fastest(min(apart.values(), key=_kernels))}. (The gain is a median over pairs of runs,"
        " its parts are means, so that their sum differs a little.)"
    )


def _fastest(row: Row) -> str:
    """Return words for a network and its kernel that gains the most from another layout."""
    if not row.get("faster"):
        return ""
    kernel = row["faster"][0]
    before, after = (kernel[key] / 1e6 for key in ("before_ns", "after_ns"))
    text = f", the most in {row['network']}, where `{kernel['node']}` takes {after:.1f} in place of"
    return f"{text} {before:.1f} ms"


def _kernels(row: Row) -> float:
    """Return what kernels in other layouts and gaps add to a run, as a share of the baseline's."""
    other = sum(ns for part, ns in row["parts_ns"].items() if "conversions" not in part)
    return float(other / row["before_ns"])


def _gains(store: Store) -> dict[str, float]:
    """Return by network the median gain of the paper's passes in the paper's setting."""
    rows = timings(store).rows(batch=1, cap=CAP, mix=MIX)
    by = {(row["network"], row["engine"]): row for row in rows}
    found = {name: gain(by.get((name, "baseline")), by[name, e]) for name, e in by if e == "ewo"}
    return {name: gained.median for name, gained in found.items() if gained}


def _less(store: Store) -> str:
    """Return the reason, with the numbers of conversions that there are to remove."""
    counts, gains = conversions.numbers(store, CAP, MIX), _gains(store)
    if not counts or not gains or 100 * fmean(gains.values()) >= paper("latency", "mean"):
        return ""
    before = {name: row[conversions.AWARE] for name, row in counts.items()}
    many = {name: number for name, number in before.items() if number > FEW}
    listed = ", ".join(f"{name} {number}" for name, number in many.items())
    left, all_of = (sum(row[level] for row in counts.values()) for level in LEFT)
    return (
        "The paper compares with TensorFlow 1.14, whose operators, memory and threads are its own."
        " Here the baseline has VTensor's kernels, threads and executor, and differs in layouts"
        " alone. It also has less to convert: only BiasAdd, Pad and Mean run on Eigen, all else on"
        f" oneDNN. A run converts {listed} times; the other {len(counts) - len(many)}"
        f" networks have batch norms in place of biases, and convert at most {FEW} times. Of all"
        f" {all_of} conversions the resolver alone leaves {left}: it gives an operator that takes"
        " any layout that of its producer, so that little is left to the paper's passes."
    )


def _when(store: Store) -> str:
    rows = list(store.table(shares.NAME, shares.KEY))
    return shares.when(rows) if rows else ""


def _chosen(store: Store) -> str:
    """Return how far rules are from the optimum, in estimated time."""
    rows = [row for row in store.table(gap.NAME, gap.KEY) if "ns" in row]
    rows = [row for row in rows if not row["network"].startswith(RANDOM)]
    rows = [row for row in rows if row["costs"] == ESTIMATED]
    if not rows:
        return ""
    said = list[str]()
    for name, words in RULES.items():
        gaps = [gap.gap(row, name) for row in rows if name in row["ns"]]
        mean = geometric_mean([1 + each for each in gaps]) - 1
        said.append(f"{words} {percent(mean)}")
    networks = len({row["network"] for row in rows})
    return (
        f"Over {len(rows)} layout problems of {networks} networks, a run takes longer than with the"
        f" best choice, by estimate and in the mean, by: {'; '.join(said)}."
    )


#: By name of a solver in ``eval/gap``, the words for it.
RULES = {
    "producer wins": "the paper's Algorithm 1 alone",
    "LHO": "with LHO",
    "EWO": "with EWO",
    "push transposes": "ONNX Runtime's rule",
    "channels last": "PyTorch's",
    "beam 4": "a beam search of width 4",
    "tree DP": "NeoCPU's dynamic program",
    PLAN: "a VTensor session",
}
