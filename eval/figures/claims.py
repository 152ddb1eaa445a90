"""The claims of the paper's text: each is confirmed or refuted by the tables.

Each claim is a function, which returns the verdict under a cap; its docstring is the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from statistics import fmean, median

from eval.experiment import Store
from eval.figures import batch, conversions, overhead
from eval.figures.paper import paper
from eval.figures.timing import Gain, gain
from eval.figures.timing import table as timings
from eval.markdown import percent

#: Caps on the instruction set, that of the paper's machine first, and the paper's mix of libraries.
CAPS, MIX = ("sse41", "max"), "tensorflow"
CONFIRMED, REFUTED, UNDECIDED, OPEN = "confirmed", "refuted", "undecided", "not measured"
#: The largest share of the baseline's time that counts as no gain.
NOTHING = 0.02

#: Whether a claim holds (None: undecided), and the evidence; it is empty if nothing was measured.
Verdict = tuple[bool | None, str]


def vgg19(store: Store, cap: str) -> Verdict:
    """VGG19 gains nothing from LOO."""
    gained = conversions.gained(store, cap).get("vgg19")
    if gained is None:
        return None, ""
    return abs(gained["LOO"]) < NOTHING, f"it gains {percent(gained['LOO'])}"


def resnet152_gain(store: Store, cap: str) -> Verdict:
    """ResNet-152 gains somewhat less from LOO than the mean does (14.18 against 15.54 %)."""
    gained = conversions.gained(store, cap)
    if "resnet152" not in gained or len(gained) < 2:
        return None, ""
    share, mean = gained["resnet152"]["LOO"], fmean(parts["LOO"] for parts in gained.values())
    return (
        0 < share < mean,
        f"it gains {percent(share)}, the mean of {len(gained)} is {percent(mean)}",
    )


def nasnet(store: Store, cap: str) -> Verdict:
    """NasNet-Large loses the most conversions, and does not gain the most."""
    gains, less = conversions.gained(store, cap), conversions.removed(store, cap)
    if "nasnet_large" not in gains or "nasnet_large" not in less:
        return None, ""
    lost = {name: before - after for name, (before, after) in less.items()}
    first = max(lost, key=lost.__getitem__)
    best = max(gains, key=lambda name: gains[name]["LOO"])
    text = f"{first} loses the most, {lost[first]}; {best} gains the most"
    nasnets = (
        f"NasNet-Large loses {lost['nasnet_large']}, gains {percent(gains['nasnet_large']['LOO'])}"
    )
    return first == "nasnet_large" != best, f"{text}; {nasnets}"


def loo_is_cheap(store: Store, cap: str) -> Verdict:
    """LOO takes less time than the baseline's layout pass."""
    phases = overhead.compared(store, cap)
    if not phases:
        return None, ""
    work = {
        name: (overhead.layout_work(e["ewo"]), overhead.layout_work(e["baseline"]))
        for name, e in phases.items()
    }
    ratio = median(ours / theirs for ours, theirs in work.values())
    fewer = sum(ours < theirs for ours, theirs in work.values())
    text = f"on {fewer} of {len(work)} networks; the median is {ratio:.2f} times the baseline's"
    return fewer == len(work), text


def deviation(store: Store, cap: str) -> Verdict:
    """The standard deviation is close to the baseline's."""
    rows = timings(store).rows(batch=1, cap=cap, mix=MIX)
    by = {(r["network"], r["engine"]): r["std_s"] / r["mean_s"] for r in rows if r["runs"]}
    pairs = [(by[n, e], by[n, "baseline"]) for n, e in by if e == "ewo" and (n, "baseline") in by]
    if not pairs:
        return None, ""
    ours, theirs = (median(column) for column in zip(*pairs, strict=True))
    text = f"relative to the mean {percent(ours)}, the baseline's {percent(theirs)} (medians)"
    return 0.5 < ours / theirs < 2, text


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

    It is refuted if a gain is below 0, and undecided if an interval includes 0.

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
    """Yield for each claim its text, the evidence with its cap and mix, and the verdict.

    The evidence is that of the first cap of ``CAPS`` that was measured.
    """
    for claim in CLAIMS:
        evidence = ((cap, *claim(store, cap)) for cap in CAPS)
        cap, holds, text = next((row for row in evidence if row[2]), (CAPS[0], None, ""))
        words = {True: CONFIRMED, False: REFUTED, None: UNDECIDED if text else OPEN}
        where = f"{cap}, {MIX}: {text}" if text else ""
        yield (claim.__doc__ or "").strip(), where, f"**{words[holds]}**"
