"""All tests of this folder have the library."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.loopback.bench import loopback


@pytest.fixture(autouse=True, scope="module")
def library() -> Iterator[None]:
    """The library ``loopback``."""
    with loopback():
        yield
