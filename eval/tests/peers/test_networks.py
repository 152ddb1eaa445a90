"""The twelve networks as frameworks run them: the same weights, the same answers."""

from __future__ import annotations

import numpy as np
import pytest

from eval.compare import TOLERANCE, difference, photograph
from eval.networks import NAMES, SMALL, build
from eval.tests.networks.test_built import QUICK
from eval.tests.peers.conftest import Emitting, block
from tests.libraries.slow import slow, slow_but
from vtensor import Session


@pytest.mark.parametrize("name", slow_but(QUICK, NAMES))
def test_logits_and_probabilities_agree(emitting: Emitting, name: str) -> None:
    graph = build(name, batch=2, size=SMALL[name]).delivering(["logits/biasadd"])
    feeds = {"image": photograph((2, 3, SMALL[name], SMALL[name]))}
    with Session(graph) as session:
        ours = session.run(None, feeds)
    for one, other in zip(ours, emitting.run(graph, feeds), strict=True):
        assert difference(one, other) <= TOLERANCE


def test_convolutions_have_their_biases() -> None:
    """ResNet-50's, in front of batch norms: only from there inductor folds those."""
    torch = pytest.importorskip("torch")
    from eval.peers import pytorch

    module = pytorch.emit(build("resnet50", size=32))
    calls = [node for node in module.graph.nodes if node.target is torch.conv2d]
    assert len(calls) == 53
    assert all(node.args[2] is not None for node in calls)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # inductor's own import
def test_compiled_is_the_same_with_all_norms_folded() -> None:
    pytest.importorskip("torch")
    from torch._dynamo.utils import counters

    from eval.peers import pytorch

    graph = block()
    feeds = pytorch.FRAMEWORK.feeds(graph, {"image": photograph((2, 3, 16, 16))})
    module = pytorch.emit(graph)
    [plain] = module(feeds)
    [fast] = pytorch.compiled(module)(feeds)
    assert difference(np.asarray(fast), np.asarray(plain)) <= TOLERANCE
    assert counters["inductor"]["mkldnn_unary_fusion_matcher_count"] == 2


@slow
def test_xla_computes_the_same() -> None:
    pytest.importorskip("tensorflow")
    from eval.peers import tensorflow

    graph = build("googlenet", size=64)
    feeds = tensorflow.FRAMEWORK.feeds(graph, {"image": photograph((1, 3, 64, 64))})
    [plain], [xla] = (tensorflow.emit(graph, xla=xla)(feeds) for xla in (False, True))
    assert difference(np.asarray(xla), np.asarray(plain)) <= TOLERANCE
