"""What all tests share: options, golden files, and a registry that a test may change."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ptensor import buffer
from resolver import evaluate
from tests.libraries.bench import Bench
from tests.libraries.golden import Golden
from tests.libraries.scratch import scratch_registry
from tests.libraries.slow import ALL
from vtensor.isa import CAPS, limit_isa

if TYPE_CHECKING:
    from resolver.lowered import LoweredGraph
    from vtensor.language.graph import Graph

#: A distribution of its own: ``test_plugin.py`` builds and installs it.
collect_ignore = ["plugin"]


@pytest.fixture
def others_done() -> None:
    """What sessions of earlier tests began beside their runs is over."""
    for thread in threading.enumerate():
        if thread.name == "vtensor-background":
            thread.join(60)
            assert not thread.is_alive()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update-golden`` writes golden files anew: look at the difference before it is kept."""
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")
    parser.addoption(
        "--isa", choices=CAPS, default="max", help="cap on the instruction set of this process"
    )
    parser.addoption(
        "--draw", type=int, metavar="N", help="at most N cases of each test, the same every time"
    )
    parser.addoption(
        "--shapes", type=int, default=8, help="sizes that each network with open ones is tried in"
    )
    parser.addoption(
        "--seeds",
        type=int,
        default=500 if ALL else 6,
        help="random graphs that are planned at each tolerance",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The cap, before any test uses a library."""
    if (cap := config.getoption("--isa")) != "max":
        limit_isa(cap)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draw cases, and begin with the wheel: a worker waits for its build beside other tests."""
    if (count := config.getoption("--draw")) is not None:
        kept = drawn(items, count)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
    items.sort(key=lambda item: item.path.name != "test_wheel.py")


def drawn(items: list[pytest.Item], count: int) -> set[pytest.Item]:
    """So many cases: of each test function by itself, so that none goes without."""
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {
        item
        for name, cases in functions.items()
        for item in Random(name).sample(cases, min(count, len(cases)))
    }


@pytest.fixture(autouse=True, scope="session")
def declared_costs() -> Iterator[None]:
    """Plans that do not depend on how fast the machine is, in processes of tests too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VTENSOR_COSTS", "declared")
        yield


@pytest.fixture(autouse=True, scope="session")
def no_cache() -> Iterator[None]:
    """Each session makes its own plans, whatever an earlier run of the tests has left on disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VTENSOR_CACHE", "off")
        yield


@pytest.fixture(autouse=True, scope="session")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Processes that tests start share compiled code, also where the machine is to keep none."""
    folder = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", str(folder / "compiled"))
        yield


@pytest.fixture(scope="session")
def squeezenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SqueezeNet with seeded weights, as a file that tests only read."""
    import onnx

    from eval.networks.models import light_model, seeded

    file = tmp_path_factory.mktemp("models") / "squeezenet.onnx"
    onnx.save(seeded(light_model("squeezenet"), seed=0), str(file))
    return file


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares text with ``tests/golden/<file>/<test>.txt``."""
    module = Path(str(request.node.path)).stem
    update = bool(request.config.getoption("--update-golden"))
    return Golden(Path(__file__).parent / "golden" / module, str(request.node.name), update)


@pytest.fixture
def scratch() -> Iterator[None]:
    """Whatever the test registers is gone afterwards."""
    with scratch_registry():
        yield


@pytest.fixture
def bench(scratch: None) -> Bench:
    """The library ``toy`` and the operators ``Toy``, ``Pair``, ``Mix``, for a test's invokers."""
    return Bench()


@pytest.fixture
def resolutions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the graphs that the test has resolved so far."""
    names: list[str] = []
    resolve = evaluate.resolve

    def counted(graph: Graph, *arguments: Any, **options: Any) -> LoweredGraph:
        lowered = resolve(graph, *arguments, **options)
        names.append(graph.name)
        return lowered

    monkeypatch.setattr(evaluate, "resolve", counted)
    return names


@pytest.fixture
def allocations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes in bytes of the buffers that the test has allocated so far."""
    sizes: list[int] = []
    count_calls(monkeypatch, "fresh", buffer.fresh, sizes)
    count_calls(monkeypatch, "fresh_pages", buffer.fresh_pages, sizes)
    return sizes


def count_calls(
    patch: pytest.MonkeyPatch, name: str, allocate: Callable[[int], Any], sizes: list[int]
) -> None:
    """Note the sizes that an allocator is called with, in each module that imports it by name."""

    def counted(nbytes: int) -> Any:
        sizes.append(nbytes)
        return allocate(nbytes)

    for module in list(sys.modules.values()):
        if vars(module).get(name) is allocate:
            patch.setattr(module, name, counted)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT interrupts the test, also where the shell started pytest with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
