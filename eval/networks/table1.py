"""Table 1 of the paper next to the networks here, and the differences of their numbers.

The paper does not say how it counts parameters. Its numbers are those of the public definitions
plus a whole number for each channel of a batch norm, and for two networks plus a class for the
background. ``Row`` has these terms, and a test checks that the sum rounds to the paper's number.
The reason is not known.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from eval.experiment import Scope, Store
from eval.figures.paper import paper
from eval.markdown import table
from eval.networks import NETWORKS, build, parameters
from eval.networks.layers import CLASSES
from vtensor.language.graph import Graph

NAME = "networks"
TITLE = "The networks (Table 1)"


class Row(NamedTuple):
    """A row of the paper's table, with the difference of its number of parameters from ours.

    Args:
        blocktime, inter_op, intra_op: TensorFlow's settings: KMP_BLOCKTIME in ms, concurrent
            operators, threads of an operator.
        layers: the number of layers, as the paper counts them.
        millions: millions of parameters, rounded.
        per_channel: the numbers that the paper adds for each channel of a batch norm.
        background: whether the paper has a 1001st class.
        remark: a further remark.
    """

    blocktime: int
    inter_op: int
    intra_op: int
    layers: int
    millions: float
    per_channel: int = 0
    background: bool = False
    remark: str = ""

    def explained(self, graph: Graph) -> int:
        """Return the paper's number of parameters before rounding, as far as it can be derived.

        Args:
            graph: the network as it is built here.
        """
        per_class = graph.values["logits/weights"].num_elements // CLASSES + 1
        extra = self.per_channel * normalized(graph) + self.background * per_class
        return parameters(graph) + extra

    def explanation(self, graph: Graph) -> str:
        """Return the difference of the paper's number from ours in words, and the remark."""
        terms: list[str] = []
        if self.per_channel:
            number = f"{abs(self.per_channel)} {'more' if self.per_channel > 0 else 'fewer'}"
            terms.append(f"{number} for each of the {normalized(graph):,} batch-norm channels")
        if self.background:
            terms.append("a 1001st class")
        counted = (
            f"the table counts as if there were {' and '.join(terms)} ({self.explained(graph):,})"
        )
        return "; ".join(filter(None, [counted if terms else "", self.remark]))


#: The fields of ``Row`` that explain the paper's number of each network.
DIFFERENCES: dict[str, dict[str, Any]] = {
    "googlenet": {
        "remark": "the table has the sum of the rounded column `params` of the network's own paper"
        " (6797.7 K), which is that of another first layer; ours are counted"
    },
    "inception_resnet_v2": {"per_channel": 3, "background": True},
    "inception_v2": {"per_channel": 5},
    "inception_v3": {"per_channel": 4},
    "nasnet_large": {"per_channel": 2},
    "resnet101": {"per_channel": 1, "remark": "layers: Keras's 347 and 2"},
    "resnet152": {"per_channel": 1, "remark": "layers: Keras's 517 and 2"},
    "resnet50": {"per_channel": 1, "remark": "layers: Keras's 177 and 2"},
    "vgg19": {"remark": "layers: Keras's 26 and 1"},
    "densenet169": {"per_channel": 2},
    "mobilenet_v1": {
        "per_channel": 1,
        "background": True,
        "remark": "layers: those of Keras Applications 1.0.2, where layers of their own pad",
    },
    "mobilenet_v2": {
        "per_channel": -1,
        "remark": "this is width 1.4; of width 1 there are 3.5 million",
    },
}

PAPER = {
    name: Row(*numbers, **DIFFERENCES[name]) for name, (_, *numbers) in paper("table1").items()
}

NOTES = (
    "Image sizes are the paper's. Parameters are in millions; ours are all weights, those of batch"
    " norms with scale, bias, mean and variance.",
    "Layers of ours are the graph's nodes. How the paper counts is not said, and fits no count that"
    " we know where nothing is remarked.",
    "The thread settings are TensorFlow's, for four sockets of eight cores. Our counterparts:"
    " inter_op is 1, since steps run one after another; intra_op is `Session(threads=)`, by default"
    " every processor; KMP_BLOCKTIME is Intel OpenMP's, for which GNU's, which runs here, has"
    " OMP_WAIT_POLICY and GOMP_SPINCOUNT.",
)


def measure(scope: Scope, store: Store) -> None:
    """Build the networks whose rows the store lacks, and count their layers and parameters."""
    kept = store.table(NAME, ["network"])
    todo = store.missing(kept, [{"network": name} for name in scope.networks])
    for count, key in enumerate(todo):
        store.advance(f"counting {key['network']}", count, len(todo))
        kept.add([{**compared(key["network"]), "threads": scope.threads}])


def section(store: Store) -> Iterator[str]:
    """Yield a table with the paper's numbers next to ours, and notes."""
    rows = list(store.table(NAME, ["network"]))
    heads = ["network", "image", "KMP_BLOCKTIME", "inter_op", "intra_op", "ours: threads"]
    heads += ["layers", "ours", "parameters, millions", "ours"]
    lines = []
    for row in rows:
        settings = (row[key] for key in ("kmp_blocktime", "inter_op", "intra_op", "threads"))
        layers, params = row["layers"].values(), row["parameters"]
        counts = (f"{params['paper_millions']:.2f}", f"{params['ours'] / 1e6:.3f}")
        lines.append([row["network"], row["image_size"], *settings, *layers, *counts])
    yield table(heads, lines)
    said = (f"- {row['network']}: {row['difference']}" for row in rows if row["difference"])
    yield "\n".join(said)
    yield "\n\n".join(NOTES)
    wait = {name: os.environ.get(name, "unset") for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    yield f"Here: {', '.join(f'{name} {value}' for name, value in wait.items())}."


def normalized(graph: Graph) -> int:
    """Return the number of channels of all batch norms."""
    means = (value for name, value in graph.values.items() if name.endswith("/mean"))
    return sum(value.num_elements for value in means)


def compared(name: str) -> dict[str, Any]:
    """Return a network's row: the paper's numbers and ours."""
    graph, row = build(name), PAPER[name]
    return {
        "network": name,
        "image_size": NETWORKS[name].size,
        "kmp_blocktime": row.blocktime,
        "inter_op": row.inter_op,
        "intra_op": row.intra_op,
        "layers": {"paper": row.layers, "ours": len(graph.nodes)},
        "parameters": {"paper_millions": row.millions, "ours": parameters(graph)},
        "difference": row.explanation(graph),
    }
