"""What another thread loads while Python reads a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ops import Relu
from tests.packaging.test_imports import python
from vtensor import Graph, Session
from vtensor.runtime import session

LOADED = """
import sys, time
from vtensor.runtime.execution.preload import load_ahead
load_ahead()
def there():
    return "/_onednn." in open("/proc/self/maps").read()
end = time.monotonic() + {seconds}
while not there() and time.monotonic() < end:
    time.sleep(0.005)
print(there(), "libdesc.onednn._onednn" in sys.modules)
from libdesc.onednn.native import load
print(load().version()[:2])
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not say it")
def test_it_is_there_before_anybody_imports_it() -> None:
    assert python(LOADED.format(seconds=30)).split() == ["True", "False", "3."]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not say it")
def test_another_build_is_left_to_who_looks_for_it() -> None:
    chosen = "import os\nos.environ['VTENSOR_ONEDNN_DIR'] = '/nowhere'\n"
    code = chosen + LOADED.format(seconds=0.2).split("from libdesc")[0]
    assert python(code).split() == ["False", "False"]


def test_what_is_no_library_is_left_to_who_needs_it(tmp_path: Path) -> None:
    (tmp_path / "none.so").write_bytes(b"no library")
    paths = [str(tmp_path / name) for name in ("none.so", "absent.so")]
    code = f"""
import time
from vtensor.runtime import _replay
for path in {paths!r}:
    _replay.load_ahead(path)
time.sleep(0.05)
from libdesc.onednn.native import load
print(load().version()[:2])
"""
    assert python(code).split() == ["3."]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_waits_for_it() -> None:
    """Else the child would have a half of it."""
    code = """
import os
from vtensor.runtime.execution.preload import load_ahead
load_ahead()
if (pid := os.fork()) == 0:
    from libdesc.onednn.native import load
    load().version()
    os._exit(0)
print(os.waitpid(pid, 0)[1])
"""
    for _ in range(5):
        assert python(code).split() == ["0"]


@pytest.mark.parametrize(
    ("options", "count"),
    [({"threads": 2}, 1), ({"threads": 1}, 0), ({"threads": 2, "libraries": ["numpy"]}, 0)],
)
def test_sessions_with_a_processor_for_it_and_any_library_want_it(
    options: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[None]()
    monkeypatch.setattr(session, "load_ahead", lambda: asked.append(None))
    g = Graph("one")
    g.output(g.add(Relu(), g.input("x", {"N": 1, "C": 2})), "y")
    Session(g, **options).close()
    assert len(asked) == count
