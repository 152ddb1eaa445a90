"""Reports of a plan, as text and as data: a line for each step, reasons of Transforms, totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from libdesc.onnx_reference import LIBRARY as REFERENCE
from libdesc.preferences import DEFINITION
from libdesc.registry import ready
from libdesc.routine import reference_kernel
from optimizer.choice.worth import Worth, narrow_worth
from resolver.errors import ErrorProof, expected
from resolver.lowered import Certificate, OpNode, Reason, TransformNode
from resolver.values import stored_as
from vtensor.language.records import dataclass
from vtensor.language.wording import counted
from vtensor.runtime.planning.tolerance import PRECISIONS

if TYPE_CHECKING:
    from vtensor.runtime.execution.plan import Plan
    from vtensor.runtime.execution.plan_steps import PlanStep
    from vtensor.runtime.session import Session

#: The bytes of a megabyte in reports.
MEGABYTE = 1e6

#: Why a step runs no kernel: in words, by the kind that ``_idle`` returns.
_IDLE = {
    "alias": "the same memory under other dims",
    "part": "one is a part of the other's memory",
    "empty": "there are no elements",
}


@dataclass(frozen=True)
class Line:
    """A line of a report; ``kind`` (step, transform, why, ...) decides the colour of the text."""

    kind: str
    text: str


def plan_dict(session: Session, name: str, error: float | None = None) -> dict[str, Any]:
    """Return a session's plan as data, for ``--json``.

    A model that runs in segments has an entry for each, ``segments``.

    Args:
        session: the session.
        name: the name of the model.
        error: what its results are off by because of the session's precision, if it was measured.
    """
    segments = [_plan_dict(session, plan, error) for plan in session.plans]
    head = {"model": name, "threads": session.threads}
    return {**head, **segments[0]} if len(segments) == 1 else {**head, "segments": segments}


def _plan_dict(session: Session, plan: Plan, error: float | None) -> dict[str, Any]:
    """Return a plan of a session as data; ``error`` as for ``plan_dict``."""
    return {
        "origin": {"way": plan.origin.way, "cached": plan.origin.cached},
        "passes": list(plan.passes),
        "rewritten": dict(plan.graph.rewritten),
        "libraries": _library_rows(),
        "inputs": [str(port) for port in session.inputs],
        "outputs": [str(port) for port in session.outputs],
        "steps": [_step_dict(plan, step) for step in plan.steps],
        "conversions": [
            {
                "node": row.node,
                "value": row.value,
                "source": str(row.source),
                "target": str(row.target),
                "bytes": row.bytes,
                "library": row.library,
                "reasons": [_reason_dict(reason) for reason in row.reasons],
            }
            for row in plan.conversions
        ],
        "certificate": certificate_dict(plan.certificate),
        "precision_error": error,
        "narrower": None if (worth := narrow_worth(plan.graph)) is None else asdict(worth),
        "taken_from": {name: list(shape) for name, shape in (plan.taken_from or {}).items()},
        "anew": list(plan.anew) if plan.taken_from else [],
        "better": plan.refinement.note if plan.refinement else "",
        "replaces": {name: list(shape) for name, shape in (plan.replaces or {}).items()},
        "constants_transformed_ahead": sum(1 for _ in plan.graph.ahead()),
        "summary": summary_dict(plan),
    }


def summary_dict(plan: Plan) -> dict[str, Any]:
    """Return a plan's totals as data: numbers of steps, kernels and Transforms, and bytes."""
    steps = plan.steps
    idle = Counter(_idle(plan, step) for step in steps)
    return {
        "steps": len(steps),
        "aliases": idle["alias"],
        "parts": idle["part"],
        "empty": idle["empty"],
        "by_library": dict(Counter(step.library for step in steps if step.kernels)),
        "by_kernel": {f"{lib}/{kernel}": n for (lib, kernel), n in plan.kernels().most_common()},
        "reference_steps": sum(step.is_reference for step in steps),
        "python_steps": sum(step.python for step in steps),
        "onnx_reference_steps": sum(step.library == REFERENCE for step in steps),
        "unlisted_steps": sum(step.unlisted for step in steps),
        "merged": len(plan.graph.merged),
        "conversions": len(plan.conversions),
        "conversion_bytes": sum(row.bytes for row in plan.conversions),
        "memory": memory_dict(plan),
    }


def memory_dict(plan: Plan) -> dict[str, int]:
    """Return the bytes of memory that a plan needs, by use.

    ``arena`` is the memory that holds the values of a run of this plan; the session's arena may be
    larger, for other plans. ``live`` is how much of ``arena`` is needed at one time. ``weights``
    are the packed constants.
    """
    return {
        "arena": plan.placement.nbytes,
        "live": plan.placement.live,
        "weights": plan.packed.nbytes,
        "outputs": sum(plan.own_sizes),
    }


def plan_lines(session: Session, name: str, error: float | None = None) -> Iterator[Line]:
    """Yield the lines of the report on a session's plan; arguments as for ``plan_dict``.

    A model that runs in segments has a report for each.
    """
    plans = session.plans
    for number, plan in enumerate(plans, 1):
        part = f", segment {number} of {len(plans)}" if len(plans) > 1 else ""
        yield from _plan_lines(session, plan, f"{name}{part}", error)


def _plan_lines(session: Session, plan: Plan, name: str, error: float | None) -> Iterator[Line]:
    """Yield the lines of the report on a plan; ``name`` is its title."""
    passes = ", ".join(plan.passes) or "none"
    yield Line(
        "head",
        f"{name}: {counted(len(plan.steps), 'step')} on {counted(session.threads, 'thread')}",
    )
    yield Line("note", f"  plan: {plan.origin}")
    yield Line("note", f"  optimiser passes: {passes}")
    yield from rewritten_lines(plan.graph.rewritten)
    for row in _library_rows():
        yield Line("note", f"  library {row}")
    for port in session.inputs:
        yield Line("note", f"  input  {port}")
    for port in session.outputs:
        yield Line("note", f"  output {port}")
    yield Line("", "")
    rows = [(step, _cells(plan, step)) for step in plan.steps]
    titles = ("node", "operator", "library", "kernel", "layouts")
    widths = [
        min(40, max(len(titles[i]), *(len(cells[i]) for _, cells in rows)) if rows else 0)
        for i in range(4)
    ]
    yield Line("head", _row("#", titles, widths))
    for number, (step, cells) in enumerate(rows):
        yield Line(_kind(step), _row(str(number), cells, widths))
        if isinstance(step.node, TransformNode):
            yield from _whys(step.node.reasons)
            continue
        if not step.kernels:
            yield Line("note", f"       {_moves_nothing(plan, step)}")
        yield from (Line("why", f"       why: {text}") for text in plan.graph.notes_of(step.node))
    yield Line("", "")
    yield from summary_lines(plan, error)


def rewritten_lines(rewritten: Mapping[str, int]) -> Iterator[Line]:
    """Yield a line that lists the applied rewrite rules; yield nothing if no rule was applied.

    Args:
        rewritten: the number of applications of each rule, by the rule's name.
    """
    if rewritten:
        rules = (f"{name} ({count})" for name, count in rewritten.items())
        yield Line("note", f"  rewritten: {', '.join(rules)}")


def summary_lines(plan: Plan, error: float | None = None) -> Iterator[Line]:
    """Yield the lines of a plan's totals: kernels, Transforms, the certificate, memory.

    Args:
        plan: the plan.
        error: as for ``plan_dict``.
    """
    total = summary_dict(plan)
    yield Line("head", "by library and kernel")
    for (library, kernel), count in plan.kernels().most_common():
        mark = "   <- reference code" if reference_kernel(kernel) else ""
        mark = "   <- calls back into Python" if kernel == "python" else mark
        yield Line("ref" if mark else "note", f"  {count:>4} x {library} {kernel}{mark}")
    for key, kind in {"aliases": "alias", "parts": "part", "empty": "empty"}.items():
        if total[key]:
            yield Line("note", f"  {total[key]:>4} x nothing runs: {_IDLE[kind]}")
    if total["merged"]:
        yield Line("note", f"  {total['merged']:>4} nodes run as parts of others")
    yield from (Line("ref", note) for note in notes(plan))
    moved = total["conversion_bytes"] / MEGABYTE
    done = sum(1 for _ in plan.graph.ahead())
    yield Line(
        "head", f"Transforms: {total['conversions']} each run, {moved:.2f} MB read and written"
    )
    for row in plan.conversions:
        cost = f"{row.bytes / MEGABYTE:.2f} MB on {row.library}"
        yield Line("transform", f"  {row.value}: {row.source} -> {row.target}, {cost}")
        yield from _whys(row.reasons)
    yield from certificate_lines(plan.certificate)
    for precision in (name for name, narrows in PRECISIONS.items() if narrows in plan.passes):
        yield Line("note", f"  {_precision_text(precision, error)}")
    if worth := narrow_worth(plan.graph):
        yield Line("note", f"  {_worth_text(worth)}")
    if plan.taken_from is not None:
        yield Line("note", f"  {_other_sizes(plan)}")
    if plan.refinement is not None:
        yield Line("note", f"  {plan.refinement.note}")
    if plan.replaces is not None:
        shapes = _listed_shapes(plan.replaces)
        text = f"made in the background, in the place of what was chosen for {shapes}"
        yield Line("note", f"  {text}")
    yield Line("note", f"  {done} more of constants, done once while loading")
    sizes = {name: f"{size / MEGABYTE:.2f} MB" for name, size in memory_dict(plan).items()}
    yield Line("head", f"memory: an arena of {sizes['arena']} ({sizes['live']} needed at once),")
    yield Line("note", f"  packed weights {sizes['weights']}, outputs {sizes['outputs']}")


def _precision_text(precision: str, error: float | None) -> str:
    """Return the line that says what results are off by because of a session's precision."""
    text = f"computed in {precision} where that is faster: results are off"
    if error is None:
        return f"{text}; vtensor plan and vtensor frontier measure by how much"
    return f"{text} by {error:.1e} of the largest one, measured on these sizes"


def _worth_text(worth: Worth) -> str:
    """Return the line that says what narrower types are worth for a plan."""
    times = ", ".join(
        f"{row.of_time:.0%} with them in {dtype} ({row.instructions})"
        for dtype, row in worth.types.items()
    )
    products = f"products in f32 are {worth.share:.0%} of the operations"
    return f"{products}; by estimate, a run would take this share of its time: {times}"


def _other_sizes(plan: Plan) -> str:
    """Return the line of a plan whose choice was made for other sizes.

    It says for which sizes, how many nodes were planned anew for the present ones, and whether the
    optimiser's proof holds for these.
    """
    proof = (
        "the proof holds for any sizes" if plan.certificate else "proven the least there, not here"
    )
    count = len(plan.graph.operators)
    replanned = f", {len(plan.anew)} of {count} nodes re-planned" if plan.anew else ""
    return f"chosen for other sizes, {_listed_shapes(plan.taken_from or {})}{replanned}: {proof}"


def _listed_shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes.items())


def certificate_dict(certificate: Certificate | None) -> dict[str, Any] | None:
    """Return a certificate as data, for ``--json``; None without a certificate."""
    if certificate is None:
        return None
    data, proof = asdict(certificate), certificate.errors
    if proof is not None:
        data["errors"] |= {"expected": proof.expected, "plain_sum": proof.plain_sum}
    return data


def certificate_lines(certificate: Certificate | None) -> Iterator[Line]:
    """Yield the lines of a certificate: what the optimiser proved, or that it proved nothing.

    If there is no certificate, yield nothing.
    """
    if certificate is None:
        return
    before, after = (
        f"{count} of {moved / MEGABYTE:.2f} MB"
        for count, moved in (
            (certificate.count_before, certificate.bytes_before),
            (certificate.count_after, certificate.bytes_after),
        )
    )
    if certificate.ns_before is not None and certificate.ns_after is not None:
        before += f" ({certificate.ns_before / 1e6:.3f} ms with what open nodes take)"
        after += f" ({certificate.ns_after / 1e6:.3f} ms)"
    costs = "" if certificate.objective != "time" else f", {certificate.costs}"
    problem = f"{certificate.objective}{costs}, {certificate.open_nodes} nodes open"
    if certificate.bound is None:
        text = f"  not optimised ({problem}): {certificate.solver} {certificate.status}"
        yield Line("ref", text)
        return
    proven = "minimal" if certificate.status == "optimal" else f"within {certificate.gap:.1%}"
    yield Line(
        "note", f"  {before} before, {after} now: proven {proven} ({problem}), {certificate.solver}"
    )
    yield from error_lines(certificate.errors)


def error_lines(proof: ErrorProof | None) -> Iterator[Line]:
    """Yield lines with the errors of the plan's approximate kernels: totals, then each kernel and
    node.

    If ``proof`` is None or the plan has no approximate kernel, yield nothing.
    """
    if proof is None or not proof.shares:
        return
    measured = "not measured" if proof.measured is None else f"{proof.measured:.1e} measured"
    sums = f"{proof.expected:.1e} expected, {proof.plain_sum:.1e} if all met"
    nodes = counted(len(proof.shares), "inexact node")
    yield Line("head", f"errors: {measured}, {proof.tolerance:.1e} allowed; {sums}; {nodes}")
    if proof.direct:
        yield Line("note", f"  sums in another order, of exact kernels: {proof.direct:.1e}")
    kernels = dict.fromkeys(share.kernel for share in proof.shares)
    for kernel in kernels:
        shares = [share for share in proof.shares if share.kernel == kernel]
        together = f"{expected(shares):.1e} together"
        yield Line("note", f"  {len(shares):>4} x {kernel or 'as its library likes'}: {together}")
        for share in sorted(shares, key=lambda each: -each.added):
            text = f"{share.error:.1e} of its own, gain {share.gain:.2g}: {share.added:.1e}"
            yield Line("note", f"       {share.node}: {text}")


def _whys(reasons: Iterable[Reason]) -> Iterator[Line]:
    for reason in reasons:
        yield Line("why", f"       why: {why(reason)}")


def notes(plan: Plan) -> list[str]:
    """Return notes on nodes that run on unexpected libraries: a line for each kind of library.

    There are two kinds: ``onnx.reference``; and the library of the operators' definitions, for
    nodes that no library of the session's list takes.
    """
    kinds = {
        "nodes that run on onnx.reference, slowly": [
            step.op for step in plan.steps if step.library == REFERENCE
        ],
        f"nodes on {DEFINITION}, since no listed library takes them": [
            step.op for step in plan.steps if step.unlisted
        ],
    }
    return [
        f"{text}: {', '.join(f'{count} x {op}' for op, count in Counter(ops).items())}"
        for text, ops in kinds.items()
        if ops
    ]


def _library_rows() -> list[str]:
    rows = []
    for library in sorted(ready().libraries.values(), key=lambda each: -each.priority):
        state = f"absent: {library.absent}" if library.absent else library.version()
        rows.append(f"{library.name} (priority {library.priority}) {state}".rstrip())
    return rows


def _idle(plan: Plan, step: PlanStep) -> str:
    """Return why a step runs no kernel, as a key of ``_IDLE``; empty if it runs one.

    There are three reasons. No output has elements (``empty``). An output has the memory of an
    input, under other dims (``alias``). Or the memory of one of them is a part of the other's
    (``part``).
    """
    if step.kernels:
        return ""
    inputs, outputs = (
        {plan.graph.values[name].nbytes for name in names}
        for names in (step.node.inputs, step.node.outputs)
    )
    if not any(outputs):
        return "empty"
    return "alias" if inputs & outputs else "part"


def _moves_nothing(plan: Plan, step: PlanStep) -> str:
    """Return why a step moves no data, and which Transforms the readers of its outputs force."""
    forced = [
        f"{node.name} to {plan.graph.values[node.output].layout} is forced by {_who(node.reason)}"
        for node in _forced(plan, step)
    ]
    return "; ".join([f"moves nothing: {_IDLE[_idle(plan, step)]}", *forced])


def _forced(plan: Plan, step: PlanStep) -> list[TransformNode]:
    return [node for node in plan.graph.transforms() if node.input in step.node.outputs]


def _who(reason: Reason) -> str:
    if reason.requirement is None:
        return f"the delivery of {reason.consumer}"
    return f"{reason.op} {reason.consumer} ({reason.requirement.place})"


def _row(number: str, cells: tuple[str, ...], widths: list[int]) -> str:
    padded = [f"{_cut(cell, w):<{w}}" for cell, w in zip(cells, widths, strict=False)]
    return f"{number:>4}  " + "  ".join([*padded, cells[-1]])


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 2] + ".."


def _kind(step: PlanStep) -> str:
    if step.is_transform:
        return "transform"
    return "ref" if step.is_reference or step.python or step.unlisted else "step"


def _cells(plan: Plan, step: PlanStep) -> tuple[str, ...]:
    kernel = " + ".join(step.kernels) or f"({_idle(plan, step)})"
    if step.is_reference:
        kernel += " (reference code)"
    if step.ns is not None:
        kernel += f" ({step.ns / 1e3:.1f} us{', tuned' * step.tuned})"
    if step.error is not None:
        kernel += f" (off by {step.error:.1e})"
    library = f"{step.library} (not listed)" if step.unlisted else step.library
    layouts = _layouts(plan, step)
    inputs = ", ".join(layout for _, layout in layouts[: len(step.node.inputs)])
    outputs = ", ".join(layout for _, layout in layouts[len(step.node.inputs) :])
    return (step.node.name, step.op, library, kernel, f"{inputs} -> {outputs}")


def _layouts(plan: Plan, step: PlanStep) -> list[tuple[str, str]]:
    names = (*step.node.inputs, *step.node.outputs)
    values = [plan.graph.values[name] for name in names]
    layouts = [value.layout for value in values]
    if isinstance(step.node, OpNode):
        layouts = [*step.node.variant.layouts]
    return [
        (value.name, stored_as(value.dtype, layout))
        for value, layout in zip(values, layouts, strict=True)
    ]


def _step_dict(plan: Plan, step: PlanStep) -> dict[str, Any]:
    layouts = [
        {
            "value": name,
            "dtype": plan.graph.values[name].dtype,
            "layout": layout,
            "sizes": dict(plan.graph.values[name].dims),
        }
        for name, layout in _layouts(plan, step)
    ]
    count = len(step.node.inputs)
    row: dict[str, Any] = {
        "node": step.node.name,
        "operator": step.op,
        "library": step.library,
        "kernels": list(step.kernels),
        "reference": step.is_reference,
        "python": step.python,
        "unlisted": step.unlisted,
        "ns": step.ns,
        "tuned": step.tuned,
        "error": step.error,
        "inputs": layouts[:count],
        "outputs": layouts[count:],
    }
    if isinstance(step.node, TransformNode):
        row["reasons"] = [_reason_dict(reason) for reason in step.node.reasons]
    else:
        row["notes"] = plan.graph.notes_of(step.node)
        row["forces"] = [] if step.kernels else [node.name for node in _forced(plan, step)]
        row["refused"] = [
            {"library": r.library, "priority": r.priority, "reason": r.reason}
            for r in step.node.variant.refused
        ]
    return row


def _reason_dict(reason: Reason) -> dict[str, Any]:
    asked = reason.requirement
    return {
        "consumer": reason.consumer,
        "role": reason.role,
        "library": reason.library,
        "operator": reason.op,
        "required_at": f"{asked.file}:{asked.line}" if asked else None,
        "producer": reason.producer,
        "producer_operator": reason.producer_op or None,
        "text": str(reason),
    }


def why(reason: Reason) -> str:
    """Return the reason of a Transform as text, in which the paths of files are short."""
    asked = reason.requirement
    return (
        str(reason)
        if asked is None
        else str(reason).replace(f"{asked.file}:{asked.line}", asked.place)
    )
