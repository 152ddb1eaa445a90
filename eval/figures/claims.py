"""The claims of the paper's text: each is confirmed, refuted or not shown by the tables.

Each claim is a function, which returns the verdict under a cap; its docstring is the claim. A claim
on times is confirmed or refuted only if the 95 % intervals exclude the other verdict; else it is
not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from statistics import fmean, median

import numpy as np

from eval.experiment import Store
from eval.figures import batch, conversions, overhead
from eval.figures.paper import paper
from eval.figures.timing import Gain, gain
from eval.figures.timing import table as timings
from eval.figures.turns import interval
from eval.markdown import percent
from vtensor.benchmark.summary import Ratio

#: Caps on the instruction set, first that of the paper's machine; and the paper's mix of libraries.
CAPS, MIX = ("sse41", "max"), "tensorflow"
CONFIRMED, REFUTED, UNDECIDED, OPEN = "confirmed", "refuted", "not shown", "not measured"
#: The largest share of the baseline's time that counts as no gain.
NOTHING = 0.02

#: Whether a claim holds (None if that is not shown), and the evidence in words, which is empty if
#: nothing was measured.
Verdict = tuple[bool | None, str]


def vgg19(store: Store, cap: str) -> Verdict:
    """VGG19 gains nothing from LOO."""
    gained = conversions.gained(store, cap).get("vgg19")
    if gained is None:
        return None, ""
    share = gained["LOO"]
    return _inside(share, -NOTHING, NOTHING), f"it gains {conversions.shown(share)}"


def _inside(found: Ratio, low: float, high: float) -> bool | None:
    """Return whether a number is between two bounds; None if its interval has one of them."""
    if low < found.low and found.high < high:
        return True
    return False if found.high < low or found.low > high else None


def resnet152_gain(store: Store, cap: str) -> Verdict:
    """ResNet-152 gains somewhat less from LOO than the mean does (14.18 against 15.54 %)."""
    gained = conversions.gained(store, cap)
    if "resnet152" not in gained or len(gained) < 2:
        return None, ""
    share = gained["resnet152"]["LOO"]
    mean = fmean(parts["LOO"].value for parts in gained.values())
    text = f"it gains {conversions.shown(share)}, the mean of {len(gained)} is {percent(mean)}"
    return _inside(share, 0, mean) if mean > 0 else False, text


def nasnet(store: Store, cap: str) -> Verdict:
    """NasNet-Large loses the most conversions, and does not gain the most."""
    gains, less = conversions.gained(store, cap), conversions.removed(store, cap)
    if "nasnet_large" not in gains or "nasnet_large" not in less:
        return None, ""
    lost = {name: before - after for name, (before, after) in less.items()}
    first = max(lost, key=lost.__getitem__)
    own = gains["nasnet_large"]["LOO"]
    best = max(gains, key=lambda name: gains[name]["LOO"].value)
    text = f"{first} loses the most, {lost[first]}; {best} gains the most"
    text += f"; NasNet-Large loses {lost['nasnet_large']}, gains {conversions.shown(own)}"
    if first != "nasnet_large":
        return False, text
    others = [parts["LOO"] for name, parts in gains.items() if name != "nasnet_large"]
    if any(other.low > own.high for other in others):
        return True, text
    return False if all(other.high < own.low for other in others) else None, text


def loo_is_cheap(store: Store, cap: str) -> Verdict:
    """LOO takes less time than the baseline's layout pass."""
    work = overhead.layout_times(store, cap)
    if not work:
        return None, ""
    pairs = [(engines["ewo"], engines["baseline"]) for engines in work.values()]
    ratio = median(median(ours) / median(theirs) for ours, theirs in pairs)
    less = sum(max(ours) < min(theirs) for ours, theirs in pairs)
    more = sum(min(ours) > max(theirs) for ours, theirs in pairs)
    text = (
        f"in every process less on {less} and more on {more} of {len(work)} networks; the median"
        f" is {ratio:.2f} times the baseline's"
    )
    return (less == len(work) or None) if not more else False, text


def deviation(store: Store, cap: str) -> Verdict:
    """The standard deviation is close to the baseline's."""
    rows = timings(store).rows(batch=1, cap=cap, mix=MIX)
    by = {(r["network"], r["engine"]): r["std_s"] / r["mean_s"] for r in rows if r["runs"]}
    pairs = [(by[n, e], by[n, "baseline"]) for n, e in by if e == "ewo" and (n, "baseline") in by]
    if not pairs:
        return None, ""
    ratio = interval(np.array([ours / theirs for ours, theirs in pairs]), 0)
    ours, theirs = (median(column) for column in zip(*pairs, strict=True))
    text = (
        f"relative to the mean {percent(ours)}, the baseline's {percent(theirs)} (medians); ratio"
        f" {ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    )
    return _inside(ratio, 0.5, 2), text


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
        return None, ""
    return _all_gain({f"{name} at {size}": gained for name, size, gained in rows})


def resnet152_conversions(store: Store, cap: str) -> Verdict:
    """ResNet-152 goes from 317 conversions to 18."""
    counts = conversions.removed(store, cap).get("resnet152")
    if counts is None:
        return None, ""
    said = paper("conversions", "resnet152")
    before, after = counts
    return after <= said["after"] and before >= 0.9 * said["before"], f"from {before} to {after}"


def performance(store: Store, cap: str) -> Verdict:
    """VTensor is faster than the baseline on every network (1.37 to 48.27 %)."""
    rows = timings(store).rows(batch=1, cap=cap, mix=MIX)
    by = {(row["network"], row["engine"]): row for row in rows}
    gains = {n: gain(by.get((n, "baseline")), by[n, e]) for n, e in by if e == "ewo"}
    known = {name: gained for name, gained in gains.items() if gained}
    if not known:
        return None, ""
    return _all_gain(known)


def _all_gain(found: Mapping[str, Gain]) -> Verdict:
    """Return the verdict on the claim that every gain is above 0, with 95 % confidence.

    It is refuted if a gain is below 0, and not shown if an interval includes 0.

    Args:
        found: the gains, by the words that name them in the evidence.
    """
    lost = [name for name, gained in found.items() if gained.high < 0]
    above = sum(gained.low > 0 for gained in found.values())
    mean = percent(fmean(gained.mean for gained in found.values()))
    text = f"{above} of {len(found)} gains are above 0 with 95 % confidence, the mean is {mean}"
    if lost:
        return False, f"{text}; slower: {', '.join(lost)}"
    return (True if above == len(found) else None), text


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


def rows(store: Store) -> Iterator[tuple[str, str, str]]:
    """Yield (text, evidence, verdict) of each claim, as Markdown.

    The evidence names its cap on the instruction set and its mix of libraries. It is that of the
    first cap of ``CAPS`` that was measured.
    """
    for claim in CLAIMS:
        evidence = ((cap, *claim(store, cap)) for cap in CAPS)
        cap, holds, text = next((row for row in evidence if row[2]), (CAPS[0], None, ""))
        words = {True: CONFIRMED, False: REFUTED, None: UNDECIDED if text else OPEN}
        where = f"{cap}, {MIX}: {text}" if text else ""
        yield (claim.__doc__ or "").strip(), where, f"**{words[holds]}**"
