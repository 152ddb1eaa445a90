"""A demonstration: ResNet-50 on a photograph, checked against the NumPy library.

``make run`` runs it. The weights are seeded, so the classes mean nothing: only their agreement with
NumPy's does.
"""

from __future__ import annotations

import statistics
import sys
import time

from matplotlib import cbook

from eval.compare import TOLERANCE, difference
from eval.networks.models import before_softmax, light_model, seeded
from vtensor import Session
from vtensor.commands.results import top_classes
from vtensor.commands.shared import print_lines, progress
from vtensor.image import image_for
from vtensor.report import summary_lines

RUNS = 20


def main() -> int:
    """Run the network, compare it with NumPy and print times.

    Return 1 if the results differ by more than ``TOLERANCE``, else 0.
    """
    with progress("ResNet-50: weights") as advance:
        advance("seeding")
        model = before_softmax(seeded(light_model("resnet50"), seed=0))
    photograph = cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)
    with progress("ResNet-50: plan") as advance:
        session = Session(model, progress=advance)
    [port] = session.inputs
    image = image_for(tuple(size or 1 for size in port.shape), photograph, "imagenet")
    [answer] = session.run(None, {port.name: image})
    with progress("checking against the NumPy library") as advance:
        advance("a run in NumPy")
        with Session(model, libraries=["numpy"]) as definition:
            [expected] = definition.run(None, {port.name: image})
    error = difference(answer, expected)
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        session.run(None, {port.name: image})
        times.append((time.perf_counter() - begin) * 1e3)

    print(f"ResNet-50, seeded weights, on matplotlib's grace_hopper.jpg as {port}")
    print_lines(summary_lines(session.plan))
    best = ", ".join(str(row["class"]) for row in top_classes(answer, 5, [])[0])
    print(f"top classes (seeded weights: only their agreement means something): {best}")
    print(f"largest difference from the NumPy kernels: {error:.2e} of the largest output")
    spread = f"min {min(times):.2f}, max {max(times):.2f}"
    print(
        f"median latency: {statistics.median(times):.2f} ms over {RUNS} runs ({spread}), "
        f"{session.threads} threads"
    )
    if not error <= TOLERANCE:
        print(f"FAILED: the difference is above {TOLERANCE:.0e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
