"""Random layout problems as plain data: small networks with branches, on three layouts."""

from __future__ import annotations

import random
from typing import Any

#: The layouts of every value; the last is blocked, and pads channels to a multiple of 8.
LAYOUTS = ("NCHW", "NHWC", "NCHW8c")

#: The rate and the overhead of a conversion.
BYTES_PER_NS, CALL_NS = 12, 2000


def random_problem(seed: int, count: int = 40) -> dict[str, Any]:
    """Return a random problem.

    A node is a product, whose kernels differ in time by up to a half; an element-wise one, which is
    as fast in each layout; or a concatenation, which may lack a layout. The first alternative is
    what Algorithm 1 takes: of a product the fastest, else that of the first input's layout.

    Args:
        seed: the seed; equal seeds give equal problems.
        count: the number of nodes.
    """
    rng = random.Random(seed)
    tensors = {f"C={channels}": _tensor(channels) for channels in (3, 16, 20, 64)}
    values: dict[str, dict[str, str]] = {"x": {"tensor": "C=3", "given": "NCHW"}}
    made, nodes = {"x": "NCHW"}, list[dict[str, Any]]()
    for number in range(count):
        kind = rng.choice(("product", "elementwise", "elementwise", "other"))
        recent = list(made)[-5:]
        reads = [rng.choice(recent)]
        if kind != "product":
            size = values[reads[0]]["tensor"]
            alike = [name for name in recent if values[name]["tensor"] == size]
            reads += rng.sample(alike, rng.randint(0, min(2, len(alike))))
        value, name = f"v{number}", f"n{number}"
        size = rng.choice([*tensors][1:]) if kind == "product" else values[reads[0]]["tensor"]
        values[value] = {"tensor": size}
        rows = _alternatives(rng, kind, len(reads), max(tensors[size]["layouts"].values()))
        if kind != "product":  # a stable sort: the follower first
            rows.sort(key=lambda row, layout=made[reads[0]]: row["reads"][0] != layout)  # type: ignore[misc]
        made[value] = rows[0]["writes"][0]
        head = {"name": name, "op": kind, "kind": kind, "reads": reads, "writes": [value]}
        nodes.append({**head, "alternatives": rows})
    read = {name for node in nodes for name in node["reads"]}
    outputs = [{"value": name, "layout": "NCHW"} for name in values if name not in read]
    parts = {"tensors": tensors, "values": values, "nodes": nodes, "outputs": outputs}
    return {"version": 1, "about": {"model": f"random {seed}"}, **parts}


def _tensor(channels: int) -> dict[str, Any]:
    sizes = [4 * 28 * 28 * c for c in (channels, channels, -(-channels // 8) * 8)]
    ns = [
        [0 if s == t else CALL_NS + (sizes[s] + sizes[t]) // BYTES_PER_NS for t in range(3)]
        for s in range(3)
    ]
    layouts = dict(zip(LAYOUTS, sizes, strict=True))
    return {"layouts": layouts, "ns": ns, "plain": "NCHW", "channels_last": "NHWC"}


def _alternatives(rng: random.Random, kind: str, count: int, nbytes: float) -> list[dict[str, Any]]:
    """Return the alternatives of a node that reads ``count`` values; a product's fastest first."""
    base = int(nbytes * rng.uniform(0.5, 3)) if kind == "product" else int(nbytes) // BYTES_PER_NS
    layouts = [*LAYOUTS] if kind != "other" else rng.sample(LAYOUTS, rng.randint(2, 3))
    ends = [(layout, layout) for layout in layouts]
    if kind == "product":
        ends += [("NCHW", "NCHW8c")]  # as first convolutions do
        rng.shuffle(ends)
        ends = ends[: rng.randint(2, 4)]
    rows = [
        {
            "reads": [source] * count,
            "writes": [target],
            "ns": int(base * rng.uniform(1, 1.5)) if kind == "product" else base,
        }
        for source, target in ends
    ]
    return sorted(rows, key=lambda row: row["ns"]) if kind == "product" else rows
