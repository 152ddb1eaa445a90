"""A bench for invokers: a small graph around one toy operator, resolved or run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from libdesc import invoker, register
from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.evaluate import resolve
from resolver.lowered import LoweredGraph
from tests.libraries.operators import declare_operators
from tests.libraries.toy import handlers
from vtensor.errors import VTensorError
from vtensor.language.graph import Graph
from vtensor.language.operators import OPERATORS
from vtensor.runtime.session import Session

HERE = Path(__file__).parent
Array = np.ndarray[Any, Any]
Sizes = Mapping[str, int]

#: What every input is unless a test says otherwise.
SIZES: Sizes = {"N": 2, "C": 3}


class Bench:
    """Registers the library ``toy`` and the toy operators; to be made inside a scratch registry."""

    def __init__(self) -> None:
        handlers.reset()
        register(HERE / "toy")
        declare_operators()

    def invoker(self, op: str = "Toy", library: str = "toy", **options: Any) -> Callable[..., Any]:
        """Register the decorated function; ``python=True`` unless the test says otherwise."""
        return invoker(op, library=library, **{"python": True, **options})

    def op(self, name: str, *args: Any, **parameters: Any) -> Any:
        """Return an instance of an operator."""
        return OPERATORS[name].cls(*args, **parameters)

    def graph(self, op: str = "Toy", *sizes: Sizes) -> Graph:
        """Return a graph of one node on inputs ``x0``, ``x1``, ...; its name is its operator's."""
        graph = Graph("bench")
        count = len(OPERATORS[op].inputs)
        inputs = [graph.input(f"x{i}", d) for i, d in enumerate(sizes or (SIZES,) * count)]
        graph.output(graph.add(self.op(op), *inputs, name=op.lower()), "y")
        return graph.seal()

    def resolve(self, op: str = "Toy", *sizes: Sizes, **entry: str) -> LoweredGraph:
        """Return the graph, resolved with these entry layouts."""
        layouts = {name: Layout(text) for name, text in entry.items()}
        return resolve(self.graph(op, *sizes), layouts)

    def decide(self, op: str = "Toy", *sizes: Sizes, **entry: str) -> Variant:
        """Return what was decided for the one node."""
        return self.resolve(op, *sizes, **entry).operators[0].variant

    def layouts(self, op: str = "Toy", *sizes: Sizes, **entry: str) -> list[str]:
        """Return the layouts that were decided, inputs first."""
        return [str(layout) for layout in self.decide(op, *sizes, **entry).layouts]

    def run(self, op: str = "Toy", *arrays: Array) -> Array:
        """Return the output of a run on arrays of the dims of ``SIZES``."""
        feeds = arrays or (np.arange(6, dtype=np.float32).reshape(2, 3),)
        with Session(self.graph(op), optimize="none") as session:  # nothing else asks invokers
            [result] = session.run(None, {f"x{i}": array for i, array in enumerate(feeds)})
        return result


def where(function: Callable[..., Any], mark: str = "") -> str:
    """Return file and line of the comment ``# mark`` in a function; of the function without."""
    lines, first = inspect.getsourcelines(function)
    marked = (i for i, text in enumerate(lines) if not mark or text.rstrip().endswith(f"# {mark}"))
    return f"{inspect.getsourcefile(function)}:{first + next(marked)}"


def message(kind: type[VTensorError], run: Callable[[], object]) -> str:
    """Return the text of the error that a call raises: of this type, not of a subclass."""
    with pytest.raises(kind) as caught:
        run()
    assert type(caught.value) is kind
    return str(caught.value)


def unused(*_: object) -> None:
    """Fail."""
    raise AssertionError("this must not be called")
