"""The claims of the paper's text, and what was expected here: each is confirmed, refuted or not
shown by the tables, and the reason is said in a sentence.

Each claim is a function, which returns the verdict under a cap; its docstring is the claim. A claim
on times is confirmed or refuted only if the 95 % intervals exclude the other verdict; else it is
not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from eval.experiment import Store
from eval.figures import batch, conversions, loc, overhead, parts
from eval.figures.paper import paper
from eval.figures.timing import Gain, gain
from eval.figures.timing import table as timings
from eval.figures.turns import interval
from eval.markdown import percent
from vtensor.benchmark.summary import CONFIDENCE, DRAWS, Ratio

#: Caps on the instruction set, first that of the paper's machine; and the paper's mix of libraries.
CAPS, MIX = ("sse41", "max"), "tensorflow"
CONFIRMED, REFUTED, UNDECIDED, OPEN = "confirmed", "refuted", "not shown", "not measured"
#: The largest share of the baseline's time that counts as no gain.
NOTHING = 0.02

#: What conversions were expected to take of the baseline's run, from the lowest to the highest
#: share, and how much of their time VTensor was expected to keep, at most.
TAKEN, KEPT = (0.03, 0.2), 0.1
#: How far the parts of a difference may be from it, as a share of a run.
ADDS_UP = 0.01
#: The share of 95 % intervals of equal times that lie above the truth.
ABOVE = 0.025
#: The caps for which it was expected that nothing is slower, and shares of conversions.
EXPECTED_CAPS = ("sse41", "avx2", "max")
EXPECTED_AT = ("sse41", "avx2")


class Verdict(NamedTuple):
    """What the tables say of a claim.

    Attributes:
        holds: whether it holds; None if that is not shown.
        text: the evidence; empty if nothing was measured.
        why: the reason, in a sentence.
    """

    holds: bool | None
    text: str
    why: str = ""


NOT_MEASURED = Verdict(None, "")


def vgg19(store: Store, cap: str) -> Verdict:
    """VGG19 gains nothing from LOO."""
    gained = conversions.gained(store, cap).get("vgg19")
    if gained is None:
        return NOT_MEASURED
    share = gained["LOO"]
    why = f"{_resolved(store, cap, 'vgg19')}Its products are large beside its conversions"
    why += f"{_taken(store, cap, 'vgg19')}."
    return Verdict(_inside(share, -NOTHING, NOTHING), f"it gains {conversions.shown(share)}", why)


def _inside(found: Ratio, low: float, high: float) -> bool | None:
    """Return whether a number is between two bounds; None if its interval has one of them."""
    if low < found.low and found.high < high:
        return True
    return False if found.high < low or found.low > high else None


def resnet152_gain(store: Store, cap: str) -> Verdict:
    """ResNet-152 gains somewhat less from LOO than the mean does (14.18 against 15.54 %)."""
    gained = conversions.gained(store, cap)
    if "resnet152" not in gained or len(gained) < 2:
        return NOT_MEASURED
    share = gained["resnet152"]["LOO"]
    mean = fmean(parts["LOO"].value for parts in gained.values())
    text = f"it gains {conversions.shown(share)}, the mean of {len(gained)} is {percent(mean)}"
    whole = conversions.shown(gained["resnet152"]["all three"])
    why = f"{_resolved(store, cap, 'resnet152')}With the resolver, it gains {whole}"
    why += (
        f", by fewer conversions{_taken(store, cap, 'resnet152')} and by kernels in other layouts."
    )
    _, most = mean_interval([each["LOO"].value for each in gained.values()])
    holds = _inside(share, 0, mean) if mean > 0 else False if most < 0 else None
    return Verdict(holds, text, why)


def nasnet(store: Store, cap: str) -> Verdict:
    """NasNet-Large loses the most conversions, and does not gain the most."""
    gains, less = conversions.gained(store, cap), conversions.removed(store, cap)
    if "nasnet_large" not in gains or "nasnet_large" not in less:
        return NOT_MEASURED
    lost = {name: before - after for name, (before, after) in less.items()}
    first = max(lost, key=lost.__getitem__)
    own = gains["nasnet_large"]["LOO"]
    best = max(gains, key=lambda name: gains[name]["LOO"].value)
    text = f"{first} loses the most, {lost[first]}; {best} gains the most"
    text += f"; NasNet-Large loses {lost['nasnet_large']}, gains {conversions.shown(own)}"
    why = (
        "In this mix, values are converted around BiasAdd, Pad and Mean. The ResNets have a bias"
        " after each convolution; NasNet-Large has batch norms, which both sides run on oneDNN."
    )
    if first != "nasnet_large":
        return Verdict(False, text, why)
    others = [each["LOO"] for name, each in gains.items() if name != "nasnet_large"]
    if any(other.low > own.high for other in others):
        return Verdict(True, text, why)
    return Verdict(False if all(other.high < own.low for other in others) else None, text, why)


def loo_is_cheap(store: Store, cap: str) -> Verdict:
    """LOO takes less time than the baseline's layout pass."""
    work = overhead.layout_times(store, cap)
    if not work:
        return NOT_MEASURED
    pairs = [(engines["ewo"], engines["baseline"]) for engines in work.values()]
    ratio = median(median(ours) / median(theirs) for ours, theirs in pairs)
    less = sum(max(ours) < min(theirs) for ours, theirs in pairs)
    more = sum(min(ours) > max(theirs) for ours, theirs in pairs)
    text = (
        f"in every process less on {less} and more on {more} of {len(work)} networks; the median"
        f" is {ratio:.2f} times the baseline's"
    )
    why = (
        "An integer program that proves the fewest bytes takes longer than a baseline that compares"
        " two layouts at a time; the paper compares with TensorFlow's pass, which rewrites a graph."
    )
    return Verdict((less == len(work) or None) if not more else False, text, why)


def deviation(store: Store, cap: str) -> Verdict:
    """The standard deviation is close to the baseline's."""
    rows = timings(store).rows(batch=1, cap=cap, mix=MIX)
    by = {(r["network"], r["engine"]): r["std_s"] / r["mean_s"] for r in rows if r["runs"]}
    pairs = [(by[n, e], by[n, "baseline"]) for n, e in by if e == "ewo" and (n, "baseline") in by]
    if not pairs:
        return NOT_MEASURED
    ratio = interval(np.array([ours / theirs for ours, theirs in pairs]), 0)
    ours, theirs = (median(column) for column in zip(*pairs, strict=True))
    text = (
        f"relative to the mean {percent(ours)}, the baseline's {percent(theirs)} (medians); ratio"
        f" {ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    )
    return Verdict(_inside(ratio, 0.5, 2), text, "Both run the same kernels on the same threads.")


def batches(store: Store, cap: str) -> Verdict:
    """The gain holds over batch sizes."""
    by_network = batch.gains(store, cap)
    rows = [
        (name, size, gained)
        for name, row in by_network.items()
        for size, gained in row.items()
        if gained
    ]
    if not rows:
        return NOT_MEASURED
    why = (
        "What has no gain at batch 1 gets none: conversions and kernels grow alike with the batch."
    )
    return _all_gain({f"{name} at {size}": gained for name, size, gained in rows}, why)


def resnet152_conversions(store: Store, cap: str) -> Verdict:
    """ResNet-152 goes from 317 conversions to 18."""
    counts = conversions.removed(store, cap).get("resnet152")
    if counts is None:
        return NOT_MEASURED
    said = paper("conversions", "resnet152")
    before, after = counts
    why = "BiasAdd takes any layout: the resolver gives it that of the convolution before it."
    holds = after <= said["after"] and before >= 0.9 * said["before"]
    return Verdict(holds, f"from {before} to {after}", why)


def performance(store: Store, cap: str) -> Verdict:
    """VTensor is faster than the baseline on every network (1.37 to 48.27 %)."""
    rows = timings(store).rows(batch=1, cap=cap, mix=MIX)
    by = {(row["network"], row["engine"]): row for row in rows}
    gains = {n: gain(by.get((n, "baseline")), by[n, e]) for n, e in by if e == "ewo"}
    known = {name: gained for name, gained in gains.items() if gained}
    if not known:
        return NOT_MEASURED
    why = (
        "With the same kernels and threads on both sides, a gain comes from conversions"
        f"{_taken(store, cap)}, and from kernels that run in another layout."
    )
    return _all_gain(known, why)


def _taken(store: Store, cap: str, network: str | None = None) -> str:
    """Return what conversions take of the baseline's run in the paper's mix, of a network or of
    all, as a clause; empty if it was not measured.
    """
    rows = parts.cells(store, cap, MIX)
    shares = [parts.converting(row)[0] for row in rows if network in (None, row["network"])]
    ends = dict.fromkeys(percent(end(shares)) for end in (min, max)) if shares else {}
    return f" ({' to '.join(map(str, ends))} of the baseline's run)" if shares else ""


def _resolved(store: Store, cap: str, network: str) -> str:
    """Return the sentence on how many conversions the resolver leaves to LOO; empty if unknown."""
    counts = conversions.numbers(store, cap, MIX).get(network, {})
    if not {conversions.AWARE, conversions.RESOLVED} <= counts.keys():
        return ""
    before, after = counts[conversions.AWARE], counts[conversions.RESOLVED]
    return f"The resolver alone leaves {after} of {before} conversions to LOO. "


def _all_gain(found: Mapping[str, Gain], why: str) -> Verdict:
    """Return the verdict on the claim that every gain is above 0, with 95 % confidence.

    It is refuted if a gain is below 0, and not shown if an interval includes 0.

    Args:
        found: the gains, by the words that name them in the evidence.
        why: the reason.
    """
    lost = [name for name, gained in found.items() if gained.high < 0]
    above = sum(gained.low > 0 for gained in found.values())
    mean = percent(fmean(gained.median for gained in found.values()))
    text = f"{above} of {len(found)} gains are above 0 with 95 % confidence, the mean is {mean}"
    if lost:
        return Verdict(False, f"{text}; slower: {', '.join(lost)}", why)
    return Verdict(True if above == len(found) else None, text, why)


def lines_of_code(store: Store) -> Verdict:
    """An operator takes fewer lines of code: 47.82 % in the mean (6.31 to 75.37 %)."""
    rows = [row for row in store.table(loc.NAME, ["operator"]) if row["operator"] != "distinct"]
    if not rows:
        return NOT_MEASURED
    shares = loc.reductions(rows, "operation", "tensorflow")
    file, python = (
        fmean(loc.reductions(rows, *columns).values())
        for columns in (("operation", "baseline"), ("written_python", "baseline_written"))
    )
    mean = percent(fmean(shares.values()))
    low, high = mean_interval([*shares.values()])
    more = ", ".join(name for name, share in shares.items() if share < 0)
    text = f"{mean} in the mean (95 % interval {percent(low)} to {percent(high)}) beside"
    text += f" TensorFlow 1.14's; more: {more}"
    why = (
        "The count is the paper's; the languages are not, as ours are Python and theirs C++. Beside"
        f" the same operators in Python that handle layouts, the file of one is {percent(file)}"
        f" shorter; all Python written for one is {percent(-python)} longer, and serves fusion,"
        " ONNX and other element types, too."
    )
    return Verdict(True if low > 0 else False if high < 0 else None, text, why)


def mean_interval(values: list[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of a mean, from random draws of the values.

    >>> mean_interval([1.0, 1.0])
    (1.0, 1.0)
    """
    drawn = np.random.default_rng(0).choice(values, (DRAWS, len(values))).mean(axis=1)
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [outside, 1 - outside])
    return float(low), float(high)


def taken_by_conversions(store: Store) -> Verdict:
    """Conversions take 3 to 20 % of the baseline's run, at SSE4.1 and AVX2."""
    shares = [parts.converting(row)[0] for cap in EXPECTED_AT for row in parts.cells(store, cap)]
    if not shares:
        return NOT_MEASURED
    low, high = TAKEN
    inside = sum(low <= share <= high for share in shares)
    text = (
        f"in {inside} of {len(shares)} cells of the networks; the mean is {percent(fmean(shares))},"
    )
    text += f" the most {percent(max(shares))}"
    why = (
        "Few values pass from one library to the other, and at AVX2 both libraries prefer channels"
        " last."
    )
    return Verdict(inside == len(shares), text, why if inside < len(shares) else "")


def kept_by_vtensor(store: Store) -> Verdict:
    """VTensor keeps at most a tenth of the time of conversions."""
    found = [parts.converting_ns(row) for cap in EXPECTED_AT for row in parts.cells(store, cap)]
    kept = [after / before for before, after in found if before]
    if not kept:
        return NOT_MEASURED
    good = sum(share <= KEPT for share in kept)
    whole = sum(after for _, after in found) / sum(before for before, _ in found)
    text = f"in {good} of {len(kept)} cells of the networks; of the time of all,"
    text += f" {percent(whole)} is left"
    why = "Conversions of inputs and outputs stay; some networks have few others."
    return Verdict(good == len(kept), text, why if good < len(kept) else "")


def nothing_is_slower(store: Store) -> Verdict:
    """No network is slower than the baseline by the paper's passes."""
    rows = [row for cap in EXPECTED_CAPS for row in parts.cells(store, cap)]
    if not rows:
        return NOT_MEASURED
    slower = [row for row in rows if row["ratio"][1] > 1]
    surely = [row for row in rows if row["ratio"][2] <= 1 + NOTHING]
    names = ", ".join(f"{row['network']} ({row['cap']}, {row['mix']})" for row in slower)
    text = f"{len(slower)} of {len(rows)} cells are slower{f': {names}' * bool(slower)}"
    text += f"; {len(surely)} are at most {percent(NOTHING, 0)} slower with 95 % confidence"
    why = f"*{parts.TITLE}* names the kernels that are slower." if slower else ""
    chance = ABOVE * len(rows)
    if 0 < len(slower) <= chance:  # no more than if all were equally fast
        why += f" If all were equally fast, {chance:.0f} intervals would lie above 0 by chance."
    if len(slower) > chance:
        return Verdict(False, text, why)
    return Verdict(len(surely) == len(rows) or None, text, why)


def parts_add_up(store: Store) -> Verdict:
    """The parts of each difference from the baseline add up to it, to 1 % of a run."""
    rows = [row for cap in EXPECTED_CAPS for row in parts.cells(store, cap)]
    if not rows:
        return NOT_MEASURED
    apart, inside = [parts.off(row) for row in rows], [parts.holds(row) for row in rows]
    good = sum(share <= ADDS_UP for share in apart)
    text = f"in {good} of {len(rows)} cells; the most is {percent(max(apart))}; the sum is in the "
    text += f"95 % interval of the difference in {sum(inside)}"
    why = "Parts are means of the middle half of pairs, the difference a median of all."
    if good == len(rows):
        return Verdict(all(inside), text, "")
    return Verdict(None if all(inside) else False, text, why)


CLAIMS: tuple[Callable[[Store, str], Verdict], ...] = (
    performance,
    vgg19,
    resnet152_gain,
    nasnet,
    resnet152_conversions,
    loo_is_cheap,
    deviation,
    batches,
)


#: What does not depend on a cap: of the paper, and what was expected here.
COUNTED: tuple[Callable[[Store], Verdict], ...] = (lines_of_code,)
EXPECTED = (taken_by_conversions, kept_by_vtensor, nothing_is_slower, parts_add_up)


def summary(store: Store) -> str:
    """Return how many of the paper's claims have each verdict, as a sentence."""
    verdicts = [verdict.strip("*") for _, _, verdict, _ in rows(store)]
    counts = (
        f"{verdicts.count(word)} {word}"
        for word in (CONFIRMED, REFUTED, UNDECIDED, OPEN)
        if word in verdicts
    )
    return f"Of {len(verdicts)} claims: {', '.join(counts)}."


def rows(store: Store) -> Iterator[tuple[str, str, str, str]]:
    """Yield (text, evidence, verdict, reason) of each claim of the paper, as Markdown.

    The evidence names its cap on the instruction set and its mix of libraries. It is that of the
    first cap of ``CAPS`` that was measured.
    """
    for claim in CLAIMS:
        found = [(cap, claim(store, cap)) for cap in CAPS]
        cap, verdict = next((each for each in found if each[1].text), found[0])
        yield _row(claim, verdict, f"{cap}, {MIX}: ")
    for counted in COUNTED:
        yield _row(counted, counted(store))


def expectations(store: Store) -> Iterator[tuple[str, str, str, str]]:
    """Yield (text, evidence, verdict, reason) of each expectation, as Markdown."""
    for expected in EXPECTED:
        yield _row(expected, expected(store))


def _row(
    claim: Callable[..., Verdict], verdict: Verdict, where: str = ""
) -> tuple[str, str, str, str]:
    holds, text, why = verdict
    words = {True: CONFIRMED, False: REFUTED, None: UNDECIDED if text else OPEN}
    said = (claim.__doc__ or "").strip()
    return said, f"{where}{text}" if text else "", f"**{words[holds]}**", why
