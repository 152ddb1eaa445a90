"""What a session says that it takes, and what the process is seen to take."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import onnx
import pytest

from eval.networks import NAMES
from tests.frontends.support import f32, model
from tests.libraries.processes import printed
from tests.libraries.slow import slow, slow_but
from tests.runtime.resident import AFTER
from tests.session.test_session import image, network
from vtensor import Session
from vtensor.runtime.planning.store import MOST_PLANS
from vtensor.runtime.recording.workspace import Workspace

MIB = 1 << 20
#: Of columns of a matrix, as oneDNN packs it: 64 with AVX-512, 24 with AVX2.
LARGEST_BLOCK = 64
linux = pytest.mark.skipif(sys.platform != "linux", reason="pages are counted in /proc")


def measured(case: str, *more: str) -> dict[str, int]:
    """Return what ``tests.runtime.resident`` says of a case."""
    numbers: dict[str, int] = json.loads(
        printed("-m", "tests.runtime.resident", case, *more, timeout=900)
    )
    return numbers


@linux
@pytest.mark.parametrize("name", slow_but(["resnet50"], NAMES))
def test_a_network_takes_the_memory_that_the_session_says(name: str) -> None:
    """Within a twentieth, or 16 MiB: generated code, the plan's objects, whole huge pages."""
    memory = measured(name)
    slack = max(memory["peak"] / 20, 16 * MIB)
    assert abs(memory["grown"] - memory["peak"]) <= slack
    assert memory["with a copy"] - memory["peak"] > slack


@linux
def test_ten_thousand_runs_take_no_more() -> None:
    memory = measured("runs")
    assert memory["grown"] <= MIB
    assert memory["kept"] > 2 * MIB


@linux
def test_two_hundred_shapes_take_as_much_as_a_few() -> None:
    memory = measured("shapes")
    assert memory["grown"] <= 4 * MIB  # a plan's outputs alone are up to 1.6 MB
    assert memory["plans"] == MOST_PLANS
    assert memory["arena"] == memory["largest"]
    # Packed in no more than two ways; the last block of columns need not be full.
    assert memory["weights"] <= 2 * 4 * 64 * (2048 + LARGEST_BLOCK)


@linux
@pytest.mark.parametrize("after", slow_but(["Relu", "SiLU"], AFTER))
def test_convolutions_leave_nothing_of_a_size_behind(after: str) -> None:
    memory = measured("reshaped", after, "3", "60", "160")
    assert memory["late"] - memory["early"] <= 4 * MIB  # 40 kB a convolution would be 12 MB
    assert memory["closed"] <= memory["late"]


@linux
@slow
@pytest.mark.parametrize("after", ["Relu", "HardSwish"])
def test_two_thousand_sizes_take_as_much_as_two_hundred(after: str) -> None:
    fused = measured("reshaped", after, "12", "200", "2000")
    plain = measured("reshaped", after, "12", "200", "2000", "none")
    before = fused["before"]
    assert before + fused["late"] <= 1.12 * (before + fused["early"])
    assert before + fused["late"] <= 1.1 * (plain["before"] + plain["late"])
    assert fused["closed"] <= fused["early"]
    assert fused["plans"] > 1
    assert fused["left"] == 0


@linux
def test_sessions_that_never_run_hold_no_more_than_their_weights(tmp_path: Path) -> None:
    side = 8192  # 256 MiB, which the file lacks: it is all holes
    text = f"g (float[n, {side}] x) => (float[n, {side}] y) {{ y = MatMul(x, w) }}"
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {text}')
    weights = made.graph.initializer.add(name="w", dims=[side, side], data_type=1)
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="w.bin")
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(4 * side * side)
    onnx.save(made, tmp_path / "m.onnx")
    memory = measured("opened", str(tmp_path / "m.onnx"))
    assert memory["one"] <= 4 * side * side + 24 * MIB
    assert memory["all"] <= 512 * MIB + 24 * MIB


def product() -> Session:
    """Return a session of a product with open rows."""
    text = "g (float[n, 4] x) => (float[n, 8] y) { a = MatMul(x, w) b = Softmax(a) y = Abs(b) }"
    return Session(model(text, w=f32(4, 8)), threads=1, libraries=["eigen"])


def test_the_last_plan_is_kept_if_plans_exceed_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    with product() as session:
        for batch in range(1, 6):
            session.run(None, {"x": f32(batch, 4)})
        assert len(session._runner.open()) == 5
        monkeypatch.setattr(Workspace, "full", True)
        for batch in range(6, 9):
            session.run(None, {"x": f32(batch, 4)})
            assert len(session._runner.open()) == 1


def test_the_parts_of_a_sessions_memory_add_up() -> None:
    with Session(network(), threads=1, libraries=["onednn"]) as session:
        session.run(None, {"x": image()})
        memory = session.memory
        assert memory.peak == memory.arena + memory.weights + memory.outputs
        assert 0 < memory.live <= memory.planned <= memory.arena
        assert memory.outputs == 2 * image().nbytes
        assert memory.weights >= sum(array.nbytes for array in network().constants.values())


def test_plans_share_weights_and_one_arena() -> None:
    with product() as session:
        session.run(None, {"x": f32(6, 4)})
        large = session.memory
        session.run(None, {"x": f32(3, 4)})
        small = session.memory
        assert small.planned < large.planned == small.arena == large.arena
        assert small.weights == large.weights >= 4 * 4 * 8
        assert 2 * small.outputs == large.outputs


def test_a_plan_with_call_backs_releases_the_arena() -> None:
    with Session(network(), threads=1, pin={"relu0": "numpy"}) as session:
        for _ in range(2):
            session.run(None, {"x": image()})
            places = session.plan.placement
            assert places.offsets
            assert not any(
                storage.bound for storage in (*places.bound, *places.offsets, *places.hosts)
            )
