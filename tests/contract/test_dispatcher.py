"""The Dispatcher: its printed text is what runs, and it follows the registry."""

from __future__ import annotations

import linecache
import traceback
from pathlib import Path
from typing import Any

import pytest

from libdesc import invoker, register, without_invoker
from libdesc.dispatcher import dispatcher, dispatcher_source
from libdesc.registry import invokers_of, registry
from libdesc.schema import Description
from resolver.extend import extend
from tests.contract.invokers import copying, tagging
from tests.libraries.bench import HERE, Bench, message, unused, where
from tests.libraries.golden import Golden
from vtensor.errors import GraphError, InvokerError, LibraryError, NoInvokerError
from vtensor.language.operators import Context, operator, param
from vtensor.language.tensor import VTensor
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.recording.on_numbers import plan_on_numbers
from vtensor.runtime.recording.workspace import Workspace

FILE = "<generated dispatcher of Toy on cpu>"


def test_golden_text(bench: Bench, golden: Golden) -> None:
    """The whole text of one: checks, then attempts by priority."""

    @operator("Scale", dims={"x": "N C *", "w": "C", "y": "*"}, equal=[("x.C", "w.C * factor")])
    class Scale:
        factor: int = param(default=1, minimum=1, maximum=8)
        mode: str = param(default="up", choices=("up", "down"))

        def compute(self, ctx: Context, x: VTensor, w: VTensor) -> VTensor:
            y = VTensor(x.dtype, x.dims, ctx.output(0))
            ctx.dispatch(self, [x, w], [y])
            return y

    register(HERE / "other")
    bench.invoker("Scale", dtypes=["f32", "bf16"], python=False)(unused)
    bench.invoker("Scale", library="other", when=lambda op, *t: op.factor == 1)(unused)
    bench.invoker("Scale", library="numpy", priority=-1, dtypes={"w": ["f32"]})(unused)
    text = dispatcher_source("Scale")
    line = unused.__code__.co_firstlineno
    golden.check(text.replace(f"bench.py:{line}", "bench.py:LINE").rstrip())


def test_the_printed_text_is_the_compiled_text(bench: Bench) -> None:
    bench.invoker()(tagging)
    bench.resolve()
    text = dispatcher_source("Toy")
    parts = ["<generated check of Toy>", "<generated invoke>", FILE]
    assert "\n\n".join("".join(linecache.getlines(part)) for part in parts) == text
    function = dispatcher("Toy")
    assert function.__code__.co_filename == FILE
    first = linecache.getline(FILE, function.__code__.co_firstlineno).rstrip()
    assert first == "def dispatch_Toy(ctx, op, inputs, outputs):"


def test_tracebacks_show_its_lines(bench: Bench) -> None:
    @bench.invoker()
    def failing(ctx: Any, op: Any, x: Any, y: Any) -> None:
        raise ArithmeticError("a bug in an invoker")

    with pytest.raises(InvokerError, match=r"'toy', toy invoker .*: a bug in") as caught:
        bench.resolve()
    assert isinstance(caught.value.__cause__, ArithmeticError)
    frames = traceback.extract_tb(caught.tb)
    lines = [frame.line for frame in frames if frame.filename == FILE]
    assert lines == ["if attempt(ctx, op, inputs, outputs, refused, row, invoke):"]


def test_without_invoker(bench: Bench) -> None:
    bench.invoker()(tagging)
    whole = dispatcher_source("Toy")
    assert "library='toy'" in whole
    with without_invoker("Toy", "toy"):
        assert "library='toy'" not in dispatcher_source("Toy")
        message(NoInvokerError, bench.resolve)
    assert dispatcher_source("Toy") == whole
    with pytest.raises(ArithmeticError), without_invoker("Toy", "toy"):
        raise ArithmeticError
    assert bench.decide().library == "toy"
    message(LibraryError, lambda: without_invoker("Toy", "numpy").__enter__())


def test_a_session_outlives_its_invoker_no_longer(bench: Bench) -> None:
    """What was resolved to a library whose invoker is gone is an error that says so."""
    bench.invoker()(tagging)
    extended = extend(bench.resolve())
    with without_invoker("Toy", "toy"):
        workspace = Workspace(Executor.of(1), 1 << 20)
        text = message(NoInvokerError, lambda: plan_on_numbers(extended, {}, workspace))
    assert text.startswith("Toy 'toy': was resolved to toy, which has no invoker for it any more")
    assert text.endswith("to fix: make a new session")


def test_new_libraries_and_invokers_are_in_the_next_text(bench: Bench) -> None:
    before = dispatcher("Toy")
    assert dispatcher("Toy") is before
    bench.invoker()(tagging)
    assert dispatcher("Toy") is not before
    invoker("Toy", library="other")(unused)
    assert "other" not in dispatcher_source("Toy")
    with register(HERE / "other"):
        assert "library='other', priority=30" in dispatcher_source("Toy")
    assert "other" not in dispatcher_source("Toy")


def test_another_device_has_a_dispatcher_of_its_own(bench: Bench) -> None:
    bench.invoker(device="gpu")(unused)
    assert "Candidate" not in dispatcher_source("Toy", "cpu")
    assert "Candidate" not in dispatcher_source("Toy", "gpu")  # toy's devices: cpu


def test_an_unknown_operator() -> None:
    assert message(GraphError, lambda: dispatcher_source("Nonsense")).startswith(
        "no operator 'Nonsense'; operators are "
    )


@pytest.mark.parametrize("name", ["check", "dispatch", "attempt", "one", "no_invoker"])
def test_a_librarys_name_meets_no_name_of_the_text(bench: Bench, name: str) -> None:
    register(Description(name, 90, ("cpu",), file=Path(f"{name}.toml")))
    bench.invoker(library=name)(copying(name))
    assert bench.decide().library == name


def test_two_functions_for_one_place(bench: Bench) -> None:
    bench.invoker()(tagging)
    text = message(LibraryError, lambda: bench.invoker()(unused))
    assert text == f"Toy on toy, cpu already has an invoker: {where(tagging)}"
    bench.invoker(priority=7)(tagging)  # the same function again, as when a module is reloaded
    assert [info.priority for info in invokers_of("toy") if info.op == "Toy"] == [7]
    assert registry().candidates("Toy", "cpu")[0][0] == 7
