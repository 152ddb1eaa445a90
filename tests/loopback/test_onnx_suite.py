"""ONNX's backend suite again, with every operand where nobody would look for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from onnx import ModelProto

from tests.libraries.slow import ALL
from tests.loopback.bench import check_scrambled
from tests.loopback.invokers import ran
from tests.onnx_suite import refused
from tests.onnx_suite.cases import Value, load
from tests.onnx_suite.engines import judge
from vtensor import Session

#: How many cases are drawn where not all are run.
DRAWN = 150


def scrambled(model: ModelProto, feeds: Mapping[str, Value]) -> Sequence[Value]:
    """VTensor's answer on loopback alone."""
    names = ["loopback"]
    with Session(model, threads=1, libraries=names, optimize="none") as session:
        answers = session.run(None, feeds)
        check_scrambled(session.plan.graph)
        return answers


def test_what_passes_elsewhere_passes() -> None:
    known = refused.read()
    cases = [case for name, case in load().items() if case.supported and name not in known]
    if not ALL:
        cases = Random(5).sample(cases, DRAWN)
    outcomes = {case.name: judge(case, scrambled) for case in cases}
    assert {n: o.reason for n, o in outcomes.items() if o.status != "passed"} == {}
    assert sum(ran.values()) > len(cases)
