"""The twelve networks that the Python builder makes: their sizes, weights and answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eval.compare import TOLERANCE, difference, photograph
from eval.experiment import Store
from eval.networks import NAMES, NETWORKS, SMALL, build, parameters
from eval.networks.table1 import PAPER, compared, section
from tests.libraries.processes import printed
from tests.libraries.slow import slow, slow_but
from vtensor import Graph, Session
from vtensor.errors import DimError

Array = NDArray[Any]

#: Parameters as in Keras Applications, plus a scale for each batch norm without one; GoogleNet's
#: are Caffe's.
PARAMETERS = {
    "googlenet": 6_998_552,
    "inception_resnet_v2": 55_873_736 + 30_272,
    "inception_v2": 11_208_192,
    "inception_v3": 23_851_784 + 17_216,
    "nasnet_large": 88_949_818,
    "resnet101": 44_707_176,
    "resnet152": 60_419_944,
    "resnet50": 25_636_712,
    "vgg19": 143_667_240,
    "densenet169": 14_307_880,
    "mobilenet_v1": 4_253_864,
    "mobilenet_v2": 6_156_712,
}

#: Networks that NumPy runs in seconds; ``make test`` runs three of them.
FAST = ("googlenet", "inception_v2", "inception_v3", "resnet50", "mobilenet_v1", "mobilenet_v2")
QUICK = ("googlenet", "mobilenet_v2")
#: Those that are built as one of the others is, with more layers; and one that has no small form.
LARGE = {"resnet101", "resnet152", "vgg19"}
#: Operators that have no weights and stand between layers.
BETWEEN = {"Add", "AvgPool", "Concat", "LRN", "MaxPool", "Mul", "Relu", "Relu6"}
#: The first numbers of some weights.
PINNED = [
    ("mobilenet_v2", "block3/project/bn/scale", [0.9277886, 0.8281580, 1.0318614]),
    ("mobilenet_v2", "block0/depthwise/weights", [0.0065041, 0.1536060, -0.1994135]),
    ("inception_v3", "mixed9/once/split/0/0/conv/weights", [0.0290793, 0.1028366, -0.0299875]),
    ("inception_v3", "mixed4/2/3/bn/var", [1.1770367, 1.2825599, 0.7681752]),
]
SIZES = {"nasnet_large": 331, "inception_v3": 299, "inception_resnet_v2": 299}


@pytest.mark.parametrize("name", slow_but({*NAMES} - LARGE, NAMES))
def test_table_1(name: str) -> None:
    """Of VGG19 alone the number of parameters depends on the image's size."""
    assert NETWORKS[name].size == SIZES.get(name, 224)
    graph = build(name, size=None if name == "vgg19" else SMALL[name])
    assert parameters(graph) == PARAMETERS[name]
    if name != "googlenet":
        assert f"{PAPER[name].explained(graph) / 1e6:.2f}" == f"{PAPER[name].millions:.2f}"


def test_the_tables_have_every_network_and_a_wrong_explanation_is_seen() -> None:
    assert set(PAPER) == set(PARAMETERS) == set(NAMES)
    graph, row = build("resnet50", size=32), PAPER["resnet50"]
    wrong = row._replace(per_channel=2)
    assert f"{wrong.explained(graph) / 1e6:.2f}" != f"{row.millions:.2f}"


def logits(graph: Graph, libraries: list[str] | None = None, batch: int = 1) -> Array:
    """Return the logits of photographs, each row less its mean."""
    [size] = {graph.values["image"].size(dim) for dim in "HW"}
    with Session(graph, libraries=libraries) as session:
        [answer] = session.run(None, {"image": photograph((batch, 3, size, size))})
    assert answer.shape == (batch, 1000)
    np.testing.assert_allclose(answer.sum(axis=1), 1, rtol=1e-5)
    rows: Array = np.log(answer)
    rows -= rows.mean(axis=1, keepdims=True)
    return rows


@pytest.mark.parametrize("name", slow_but(QUICK, NAMES))
def test_agrees_with_numpy(name: str) -> None:
    graph = build(name, batch=2, size=SMALL[name])
    ours = logits(graph, batch=2)
    assert difference(ours, logits(graph, ["numpy"], batch=2)) <= TOLERANCE
    assert np.all((ours.std(axis=1) > 0.1) & (ours.std(axis=1) < 5)), "no spread, or saturated"
    assert np.corrcoef(ours)[0, 1] < 0.995, "the image hardly matters"


@slow
@pytest.mark.parametrize("name", NAMES)
def test_full_size(name: str) -> None:
    """The first row of a batch is what the same image alone gives."""
    alone, batch = (logits(build(name, size), batch=size) for size in (1, 2))
    assert difference(batch[:1], alone) <= TOLERANCE


def weights(graph: Graph) -> dict[str, bytes]:
    """Return the bytes of each constant by name."""
    return {name: array.tobytes() for name, array in graph.constants.items()}


def test_weights_depend_on_names_and_seed_alone() -> None:
    ours = weights(build("mobilenet_v2", size=32))
    assert ours == weights(build("mobilenet_v2", batch=3, size=64))
    other = weights(build("mobilenet_v2", size=32, seed=1))
    assert ours.keys() == other.keys()
    assert not ours.items() & other.items()


@pytest.mark.parametrize(("network", "name", "first"), PINNED)
def test_weights_stay_what_they_are(network: str, name: str, first: list[float]) -> None:
    array = build(network, size=SMALL[network]).constants[name]
    assert array.ravel()[: len(first)].tolist() == pytest.approx(first, rel=1e-4)


def test_no_two_layers_or_networks_share_weights() -> None:
    networks = ("mobilenet_v1", "mobilenet_v2", "resnet50")
    drawn = [array for name in networks for array in weights(build(name, size=32)).values()]
    assert len({array[:64] for array in drawn}) == len(drawn)


def test_kernels_are_scaled_and_keep_a_part_of_their_mean() -> None:
    kernel = build("resnet50", size=32).constants["conv3_block2/2_conv/weights"]
    assert kernel.dtype == np.float32
    assert kernel.std() == pytest.approx((2.378 / (9 * 128)) ** 0.5, rel=0.01)
    sums = kernel.sum(axis=(1, 2, 3))
    assert sums.std() == pytest.approx((2.378 / 2) ** 0.5, rel=0.15)  # plain: without the 2


def test_differences_do_not_grow_from_layer_to_layer() -> None:
    """As they do where kernels add up to 0: seventy-fold after all of these layers."""
    image = photograph((1, 3, 32, 32))
    nudge = np.float32(1e-3) * np.random.default_rng(4).standard_normal(image.shape, np.float32)
    with Session(build("vgg19", size=32), tolerance=0) as session:
        rows = [np.log(session.run(None, {"image": x})[0]) for x in (image, image + nudge)]
    plain, nudged = (row - row.mean() for row in rows)
    assert difference(nudged, plain) < 5e-3


@pytest.mark.parametrize("name", FAST)
def test_blocks_are_scopes(name: str) -> None:
    """Pictures fold by scope: what stands between layers is in its block's too."""
    nodes = build(name, size=SMALL[name]).nodes.values()
    assert {node.op_name for node in nodes if "/" not in node.name}.isdisjoint(BETWEEN)
    assert not BETWEEN.isdisjoint(node.op_name for node in nodes)


def test_a_batch_may_be_open() -> None:
    with Session(build("mobilenet_v1", batch=None, size=32)) as session:
        for batch in (1, 3):
            [answer] = session.run(None, {"image": photograph((batch, 3, 32, 32))})
            assert answer.shape == (batch, 1000)


def test_an_image_that_is_too_small_and_an_unknown_network_are_refused() -> None:
    with pytest.raises(DimError, match="does not fit"):
        build("inception_v3", size=32)
    with pytest.raises(ValueError, match="there are googlenet, "):
        build("resnet51")


def test_the_table_shows_the_papers_numbers_and_ours(tmp_path: Path) -> None:
    row = compared("mobilenet_v1")
    assert row["layers"] == {"paper": 102, "ours": 85}
    assert row["difference"].startswith(
        "the table counts as if there were 1 more for each of the 10,944 batch-norm channels and"
        " a 1001st class (4,265,833); layers"
    )
    store = Store(tmp_path, {"when": "now"})
    store.table("networks", ["network"]).add([{**row, "threads": 2}])
    line = next(section(store)).splitlines()[-1].strip("| ").split(" | ")
    assert line == [*("mobilenet_v1", "224", "0", "1", "32", "2", "102", "85", "4.27", "4.254")]


#: Prints the bytes of NasNet-Large's weights, and the peak of memory of building and loading it.
#: (A process's ru_maxrss would begin with what its parent had.)
LOADING = """
from pathlib import Path
from eval.networks import build
from vtensor import Session, save_onnx

def peak():
    [line] = [x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x]
    return int(line.split()[1]) * 1024

with Session(build("mobilenet_v1", size=32)):
    before = peak()
    graph = build("nasnet_large")
    weights = sum(array.nbytes for array in graph.constants.values())
    {source}
    with Session(graph):
        print(weights, peak() - before)
"""


@slow
@pytest.mark.parametrize(
    ("source", "low", "high"),
    [
        # The graph keeps its own; the plan's, with their pads, are 1.003 times as much. The rest
        # is what 1,240 nodes, their steps and the solver take, and a folded weight.
        ("", 2, 2.003 + 0.25),
        ("graph = save_onnx(graph, {file!r}) or {file!r}", 1, 1.35),
    ],
    ids=["graph", "file"],
)
def test_a_graph_is_loaded_with_its_weights_twice_and_a_file_once(
    source: str, low: float, high: float, tmp_path: Path
) -> None:
    code = LOADING.format(source=source.format(file=str(tmp_path / "nasnet.onnx")))
    weights, peak = map(int, printed("-c", code).split())
    assert low < peak / weights <= high
