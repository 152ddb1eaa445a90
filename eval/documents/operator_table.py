"""Write ``docs/operators.md``: the operators of ONNX that VTensor reads, and those it expands.

``python -m eval.documents.operator_table``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import onnx

from libdesc.registry import registry
from tests.onnx_suite.cases import load
from tests.onnx_suite.engines import at_load, judge
from vtensor.frontends.functions import has_body
from vtensor.language.operators import OPERATORS
from vtensor.language.spelling import Refusal, Spelling
from vtensor.language.table import OperatorInfo

FILE = Path(__file__).parents[2] / "docs" / "operators.md"

_HEAD = """\
# Operators of ONNX

Made by `python -m eval.documents.operator_table` from what is registered; a test compares the two.
What has constants or shapes for its only inputs (Constant, ConstantOfShape, Shape, Size, ...) is
computed once, while loading, whatever the operator is; an input that decides shapes may be an
initializer or an input of the graph. A node that no library takes is refused with each library's
reason. What is in neither table runs on ONNX's own evaluator (the library `onnx_reference`: slow,
and plans say so) where it reads and makes tensors of our element types, of sizes that are known
before a run, and holds no graphs; `--no-reference` refuses it. `tests/onnx_suite/refused.txt` lists
the cases of ONNX's own suite that are refused though VTensor has the operator. The last column
names the operators that `save_onnx` writes, where ONNX has them in the opset asked for; it refuses
the others by name.

| ONNX | opsets | operators here | libraries | exported |
|---|---|---|---|---|"""

_EXPANDED = """
## Expanded

These VTensor does not have; a node becomes the nodes of the function by which ONNX defines the
operator, and one case of ONNX's suite at least passes so. Functions of the model's own are expanded
too, and so are If, Loop and Scan where what they run is known before a run.

| ONNX | opsets |
|---|---|"""


def libraries(info: OperatorInfo) -> list[str]:
    """Return the names of this distribution's libraries that have an invoker for an operator."""
    return sorted(
        invoker.library
        for invoker in registry().invokers.values()
        if invoker.op == info.name and invoker.function.__module__.startswith(("ops.", "libdesc."))
    )


def opsets(spellings: list[Spelling]) -> str:
    """Return the opsets in which at least one spelling is valid, as text.

    >>> one = Spelling("Softmax", 1, read=None, names=None, until=12)
    >>> opsets([one]), opsets([one, Spelling("Softmax", 13, read=None, names=None)])
    ('1 to 12', 'from 1')
    """
    spans: list[tuple[int, int | None]] = []
    for since, until in sorted((s.since, s.until) for s in spellings):
        if spans and (spans[-1][1] is None or since <= spans[-1][1] + 1):
            first, last = spans.pop()
            spans.append((first, None if None in (last, until) else max(last or 0, until or 0)))
        else:
            spans.append((since, until))
    return ", ".join(f"{a} to {b}" if b else f"from {a}" for a, b in spans)


def expanded() -> dict[str, int]:
    """Return the ONNX operators that VTensor replaces by ONNX's functions: first opset by name.

    A function is a definition of an operator by other operators. For each operator returned, at
    least one case of ONNX's test suite passes, and is not computed while the model is loaded.
    """
    since_of: dict[str, int] = {}
    for case in load().values():
        if len(case.operators) > 1:
            continue
        [(domain, op_type)] = case.operators
        versions = {s.since_version for s in _history() if (s.domain, s.name) == (domain, op_type)}
        since = [v for v in sorted(versions) if has_body(domain, op_type, v)]
        label = f"{domain}::{op_type}" if domain else op_type
        spelled = not domain and OPERATORS.spellings(op_type, since[-1]) if since else True
        passed = label not in since_of and not spelled and judge(case).status == "passed"
        if passed and not at_load(case):
            since_of[label] = since[0]
    return dict(sorted(since_of.items()))


@cache
def _history() -> Sequence[onnx.defs.OpSchema]:
    return onnx.defs.get_all_schemas_with_history()


def own() -> list[str]:
    """Return, for each ONNX operator that is read as one of ``ops``, a row of a Markdown table."""
    registry()
    rows: dict[str, list[tuple[Spelling, OperatorInfo]]] = defaultdict(list)
    for info in OPERATORS.values():
        if info.cls.__module__.startswith("ops."):
            for spelling in info.read_as:
                if not isinstance(spelling.read, Refusal):
                    rows[spelling.op_type].append((spelling, info))
    lines = []
    for op_type, spellings in sorted(rows.items()):
        infos = sorted({info.name: info for _, info in spellings}.items())
        cells = (
            op_type,
            opsets([spelling for spelling, _ in spellings]),
            ", ".join(name for name, _ in infos),
            "; ".join(sorted({", ".join(libraries(info)) for _, info in infos} - {""})),
            ", ".join(name for name, info in infos if info.write) or "no",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def table() -> str:
    """Return the text of ``docs/operators.md``."""
    functions = [f"| {label} | from {since} |" for label, since in expanded().items()]
    return "\n".join([_HEAD, *own(), _EXPANDED, *functions, ""])


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(table(), encoding="utf-8")
