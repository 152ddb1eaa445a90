"""Each operator with one open size: sizes one after the other answer as each does by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.libraries.slow import ALL
from tests.operators.cases import CASES, Case
from tests.planning.rows import Feeds
from vtensor import Graph, Session
from vtensor.errors import VTensorError
from vtensor.language.dtype import from_numpy
from vtensor.language.graph import same_bytes

#: The third is the first that a symbolic plan may serve, and what is repeated may be of one element
#: then; later ones are at borders of blocks.
SIZES = (4, 6, 1, 3, 17, 16) if ALL else (4, 6, 1, 17)

#: Of the operators' cases, how many each operator has here.
FEW = 2 if ALL else 1


def opened(case: Case) -> tuple[Graph, Callable[[int], Feeds]] | None:
    """A graph of the case's operator whose inputs have one open dim, and feeds by its size."""
    rows = case.given()
    known = {dim for one in rows if one.constant for dim in one.dims}
    free = [dim for one in rows if not one.constant for dim in one.dims if dim not in known]
    if not free:
        return None
    graph, inputs = Graph("one"), []
    fed = {f"x{i}": one for i, one in enumerate(rows) if not one.constant}
    try:
        for i, one in enumerate(rows):
            dims = {dim: None if dim == free[0] else n for dim, n in one.extents.items()}
            if one.constant:
                inputs.append(graph.constant(one.array, one.dims))
            else:
                inputs.append(graph.input(f"x{i}", dims, from_numpy(one.array.dtype)))
        result = graph.add(case.op, *inputs)
        for i, value in enumerate(result if isinstance(result, tuple) else [result]):
            graph.output(value, f"y{i}")
        graph.seal()
    except VTensorError:
        return None  # the case is for these sizes alone

    def feeds(size: int) -> Feeds:
        return {
            name: np.resize(one.array, [size if dim == free[0] else n for dim, n in row])
            for name, one in fed.items()
            if (row := [*one.extents.items()])
        }

    return graph, feeds


def run(session: Session, feeds: Feeds) -> list[Any] | str:
    """Results; the kind of error where the operator does not take these sizes."""
    try:
        return [np.asarray(one) for one in session.run(None, feeds)]
    except VTensorError as error:
        return type(error).__name__


@pytest.mark.parametrize("name", [*CASES])
def test_each_operator(name: str) -> None:
    options: dict[str, Any] = {"threads": 1, "cache_dir": None, "optimize": "all"}
    for case in CASES[name][:FEW]:
        if (found := opened(case)) is None:
            continue
        graph, feeds = found
        with Session(graph, **options) as session:
            for size in SIZES:
                fed = feeds(size)  # sums go by where it is in memory, too
                given = run(session, fed)
                with Session(graph, **options) as alone:
                    wanted = run(alone, fed)
                    same = choice(alone) == choice(session)
                if isinstance(given, str) or isinstance(wanted, str):
                    assert given == wanted, size
                    continue
                for one, other in zip(given, wanted, strict=True):
                    if same:
                        assert same_bytes(one, other), size
                    else:
                        np.testing.assert_allclose(one, other, 1e-4, 1e-5)


def choice(session: Session) -> object:
    """What runs, where the last run had a plan."""
    try:
        steps = session.plan.steps
    except VTensorError:
        return None
    return [(step.node.name, step.library, step.kernels) for step in steps]
