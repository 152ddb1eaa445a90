"""Options and fixtures of all tests: golden files, a scratch registry, counts."""

from __future__ import annotations

import gc
import logging
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

#: A distribution of its own, which ``test_plugin.py`` builds and installs.
collect_ignore = ["plugin"]


@pytest.fixture
def others_done() -> None:
    """Wait until the background work of earlier tests' sessions has ended."""
    for thread in threading.enumerate():
        if thread.name == "vtensor-background":
            thread.join(60)
            assert not thread.is_alive()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; look at the difference that ``--update-golden`` makes before a commit."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files")
    parser.addoption(
        "--isa", choices=CAPS, default="max", help="cap on the instruction set of this process"
    )
    parser.addoption(
        "--draw", type=int, metavar="N", help="at most N cases of each test, the same every time"
    )
    parser.addoption(
        "--shapes",
        type=int,
        default=8 if ALL else 3,
        help="sizes that each network with open ones is tried in",
    )
    parser.addoption(
        "--seeds",
        type=int,
        default=500 if ALL else 3,
        help="random graphs that are planned at each tolerance",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set the cap before any test uses a library."""
    if (cap := config.getoption("--isa")) != "max":
        limit_isa(cap)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draw cases, and begin with the wheel, whose build takes one worker minutes."""
    if (count := config.getoption("--draw")) is not None:
        chosen = drawn(items, count)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
    items.sort(key=lambda item: item.path.name != "test_wheel.py")


def pytest_collection_finish() -> None:
    """Let garbage collections pass over what collecting tests has made, which stays anyway."""
    gc.collect()
    gc.freeze()


def drawn(items: list[pytest.Item], count: int) -> set[pytest.Item]:
    """Return at most so many cases of each test function."""
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
    """Make plans independent of the machine's speed, in processes of tests too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VTENSOR_COSTS", "declared")
        yield


@pytest.fixture(autouse=True, scope="session")
def no_cache() -> Iterator[None]:
    """Let each session make its own plans, whatever earlier runs of the tests have cached."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VTENSOR_CACHE", "off")
        yield


@pytest.fixture(autouse=True, scope="session")
def code_pages_stay() -> Iterator[None]:
    """Keep libraries' code in memory behind each session's end: the next test's session needs it.

    Processes of tests give it back.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vtensor.runtime.execution.trim.give_back_code", lambda parts: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let processes of tests share compiled code, also where the environment forbids it."""
    folder = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", str(folder / "compiled"))
        yield


@pytest.fixture(scope="session")
def squeezenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write SqueezeNet with seeded weights, in a file that tests only read."""
    import onnx

    from eval.networks.models import light_model, seeded

    file = tmp_path_factory.mktemp("models") / "squeezenet.onnx"
    onnx.save(seeded(light_model("squeezenet"), seed=0), str(file))
    return file


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Return what compares text with ``tests/golden/<file>/<test>.txt``."""
    folder = Path(__file__).parent / "golden" / Path(str(request.node.path)).stem
    return Golden(folder, str(request.node.name), request.config.getoption("--update-golden"))


@pytest.fixture
def scratch() -> Iterator[None]:
    """Undo afterwards what the test registers."""
    with scratch_registry():
        yield


@pytest.fixture
def bench(scratch: None) -> Bench:
    """Register the library ``toy`` and the operators ``Toy``, ``Pair``, ``Mix``."""
    return Bench()


@pytest.fixture
def resolutions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the names of the graphs that the test resolves."""
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
    """Record the sizes in bytes of the buffers that the test allocates."""
    sizes: list[int] = []
    for name in ("fresh", "fresh_pages"):
        count_calls(monkeypatch, name, getattr(buffer, name), sizes)
    return sizes


def count_calls(
    patch: pytest.MonkeyPatch, name: str, allocate: Callable[[int], Any], sizes: list[int]
) -> None:
    """Record the sizes that an allocator is called with, in each module that imports it."""

    def counted(nbytes: int) -> Any:
        sizes.append(nbytes)
        return allocate(nbytes)

    for module in list(sys.modules.values()):
        if vars(module).get(name) is allocate:
            patch.setattr(module, name, counted)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT interrupt the test, also when the shell has started pytest without it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _logs() -> None:
    """Let VTensor's log say everything, whatever an earlier test of the process has set."""
    logging.disable(logging.NOTSET)
    for name in ("vtensor", *(n for n in logging.root.manager.loggerDict if n[:8] == "vtensor.")):
        log = logging.getLogger(name)
        log.disabled, log.propagate = False, True
        log.setLevel(logging.NOTSET)
