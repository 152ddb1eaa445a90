"""Each operator with one open size: sizes one after the other answer as each does by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.libraries.slow import ALL
from tests.operators.tables.cases import CASES, Case
from tests.planning.rows import Feeds
from vtensor import Graph, Session
from vtensor.errors import VTensorError
from vtensor.language.dtype import from_numpy
from vtensor.language.graph import same_bytes

#: The third is the first that a symbolic plan may serve, and what is repeated may be of one element
#: then; later ones are at borders of blocks.
SIZES = (4, 6, 1, 3, 17, 16) if ALL else (4, 6, 1)

#: Of the operators' cases, how many each operator has here.
FEW = 2 if ALL else 1


def opened(case: Case) -> tuple[Graph, Callable[[int], Feeds]] | None:
    """Return a graph of the case's operator whose inputs have one open dim, and feeds by its size;
    None if the case is for its sizes alone.
    """
    rows = {f"x{i}": row for i, row in enumerate(case.given())}
    fed = {name: row for name, row in rows.items() if not row.constant}
    known = {dim for row in rows.values() if row.constant for dim in row.dims}
    free = [dim for row in fed.values() for dim in row.dims if dim not in known]
    if not free:
        return None
    graph, inputs = Graph("one"), []
    try:
        for name, row in rows.items():
            dims = {dim: None if dim == free[0] else n for dim, n in row.extents.items()}
            if row.constant:
                inputs.append(graph.constant(row.array, row.dims))
            else:
                inputs.append(graph.input(name, dims, from_numpy(row.array.dtype)))
        result = graph.add(case.op, *inputs)
        for i, value in enumerate(result if isinstance(result, tuple) else [result]):
            graph.output(value, f"y{i}")
        graph.seal()
    except VTensorError:
        return None

    def feeds(size: int) -> Feeds:
        return {
            name: np.resize(row.array, [size if dim == free[0] else n for dim, n in extents])
            for name, row in fed.items()
            if (extents := [*row.extents.items()])
        }

    return graph, feeds


def run(session: Session, feeds: Feeds) -> tuple[list[Any] | str, object]:
    """Return outputs and what runs; the kind of error where the operator has no such sizes."""
    try:
        outputs = [np.asarray(y) for y in session.run(None, feeds)]
    except VTensorError as error:
        return type(error).__name__, None
    return outputs, [(step.node.name, step.library, step.kernels) for step in session.plan.steps]


@pytest.mark.parametrize("name", [*CASES])
def test_each_operator(name: str) -> None:
    options: dict[str, Any] = {"threads": 1, "cache_dir": None, "optimize": "all"}
    for case in CASES[name][:FEW]:
        if (network := opened(case)) is None:
            continue
        graph, feeds = network
        with Session(graph, **options) as session:
            for size in SIZES:
                arrays = feeds(size)  # sums go by where it is in memory, too
                outputs, choice = run(session, arrays)
                with Session(graph, **options) as alone:
                    wanted, own_choice = run(alone, arrays)
                if isinstance(outputs, str) or isinstance(wanted, str):
                    assert outputs == wanted, size
                    continue
                for y, want in zip(outputs, wanted, strict=True):
                    if choice == own_choice:
                        assert same_bytes(y, want), size
                    else:
                        np.testing.assert_allclose(y, want, 1e-4, 1e-5)
