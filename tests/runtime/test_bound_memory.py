"""Memory that is bound and then taken away: Python refuses, or the next run says so."""

from __future__ import annotations

import mmap
from collections.abc import Callable

import numpy as np
import pytest

from tests.session.test_out import Array
from tests.session.test_session import image, network
from vtensor import Session
from vtensor.errors import InputError

SIZE = image().nbytes


def room(buffer: object) -> Array:
    return np.frombuffer(buffer, np.float32, image().size).reshape(image().shape)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize(
    ("make", "free"),
    [
        (lambda: bytearray(SIZE), lambda given: given.clear()),
        (lambda: bytearray(SIZE), lambda given: given.extend(b"more")),
        (lambda: mmap.mmap(-1, SIZE), lambda given: given.close()),
        (lambda: mmap.mmap(-1, SIZE), lambda given: given.resize(2 * SIZE)),
        (lambda: np.zeros(image().size, np.float32), lambda given: given.resize(1)),
    ],
    ids=["clear", "extend", "close", "remap", "resize"],
)
def test_what_looks_at_memory_keeps_it(
    make: Callable[[], object], free: Callable[[object], None]
) -> None:
    given, written = make(), make()
    with Session(network(), threads=1) as session:
        want = session.run(["y"], {"x": image()})[0]
        x, y = room(given), room(written)
        binding = session.bind({"x": x}, {"y": y})
        x[...] = image()
        del x, y  # the binding alone looks at the memory
        for memory in (given, written):
            with pytest.raises((BufferError, ValueError)):
                free(memory)
        binding.run()
        np.testing.assert_array_equal(room(written), want)


@pytest.mark.parametrize("size", [1, 100 * image().size])
@pytest.mark.parametrize("name", ["x", "y"])
@pytest.mark.parametrize("view", [False, True])
def test_arrays_that_were_resized_all_the_same(size: int, name: str, view: bool) -> None:
    """NumPy does not count who looks at an array if it is told not to."""
    arrays = {one: np.zeros(image().shape, np.float32) for one in ("x", "y")}
    bound = {one: array[:, :] if view else array for one, array in arrays.items()}
    with Session(network(), threads=1) as session:
        want = session.run(["y"], {"x": image()})[0]
        binding = session.bind({"x": bound["x"]}, {"y": bound["y"]})
        before = arrays[name].ctypes.data
        arrays[name].resize(size, refcheck=False)
        grown = size > 1 and arrays[name].ctypes.data == before  # in place: nothing is lost
        for _ in range(2):
            if grown:
                binding.run()
            else:
                with pytest.raises(InputError, match="was resized: bind the session again"):
                    binding.run()
        np.testing.assert_array_equal(session.run(["y"], {"x": image()})[0], want)
