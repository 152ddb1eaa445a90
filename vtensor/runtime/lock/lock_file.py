"""Lock files: a plan printed to be reviewed, compared and run again unchanged."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resolver.errors import ErrorProof
from resolver.lock_choice import Choices
from resolver.lowered import Certificate
from vtensor import __version__
from vtensor.errors import InputError, LockError, VTensorError
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass
from vtensor.language.user_files import parse_toml, read_text
from vtensor.language.wording import counted, reason
from vtensor.runtime.lock.plan_options import PlanOptions
from vtensor.runtime.lock.proof import certificate_of, errors_of, errors_row, proof_row
from vtensor.runtime.lock.rows import (
    choices_of,
    costs_of,
    input_rows,
    node_rows,
)
from vtensor.runtime.lock.toml import Table, toml_lines
from vtensor.storage.inputs import parse_layouts

if TYPE_CHECKING:
    from ptensor.layout import Layout
    from vtensor.language.graph import Graph
    from vtensor.runtime.planning.source import Source

#: The version of lock files that is written, and the only one that is read.
FORMAT = 1

_HEAD = """\
# How VTensor runs a model, written by `vtensor lock`. Session(MODEL, plan=THIS_FILE) runs it so
# again, and `vtensor diff` compares two such files. Nodes stand in the order in which they run;
# what they cost, which differs from machine to machine, stands at the end.
"""


#: The key of the segments' tables.
_SEGMENT = "segment"

#: The keys of a plan's own tables, in a lock file or in a segment of one.
_PLAN_KEYS = (
    *("content", "passes", "inputs", "outputs"),
    *("node", "errors", "costs", "certificate"),
)


@dataclass(frozen=True)
class Lock:
    """The content of a lock file: a plan, or the plans of a model's segments.

    Attributes:
        model: the network's name.
        content: a digest of the network: nodes, parameters, sizes, constants; of a model in
            segments, a digest without sizes.
        versions: the versions of VTensor and its libraries, with the instruction sets that they
            use, by name.
        processor, threads: the processor and the number of kernel threads that the plan was made
            for.
        options: the session's options that the plan depends on.
        passes: the names of the passes that made the plan.
        choices: the choice of the plan.
        costs: a row for each node, by name: ``ns`` (nanoseconds), ``basis`` (how ``ns`` is known),
            ``bytes`` for a Transform, ``open`` if several variants were compared.
        certificate: the solver's proof, and the errors for which it holds; None without one.
        file: the path from which the lock file was read; empty if it was not read.
        lines: the line number of each node in the file; empty if unknown.
        segments: the plan of each segment that had run, by the segment's name; empty for a model of
            one plan. ``choices`` then has the model's inputs and outputs alone.
        computed: names of the inputs that other segments compute. They have any sizes in a run.
    """

    model: str
    content: str
    versions: Mapping[str, str]
    processor: str
    threads: int
    options: PlanOptions
    passes: tuple[str, ...]
    choices: Choices
    costs: Mapping[str, Mapping[str, Any]]
    certificate: Certificate | None
    file: str = ""
    lines: tuple[int, ...] = ()
    segments: Mapping[str, Lock] = field(default_factory=dict)
    computed: frozenset[str] = frozenset()

    @property
    def proof(self) -> ErrorProof | None:
        """The errors of approximate nodes in the plan's certificate; None for a strict plan."""
        return self.certificate.errors if self.certificate is not None else None

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> Lock:
        """Return the lock of a file.

        Raises:
            LockError: the file cannot be read or its content is invalid; the message names the line
                or key.
        """
        name = os.fspath(file)
        try:
            text = read_text(name)
            data = parse_toml(text)
        except (OSError, UnicodeDecodeError) as error:
            pass_signals(error)
            raise LockError(f"{name}: cannot be read: {reason(error)}") from error
        except ValueError as error:
            raise LockError(f"{name}: is no TOML: {error}") from error
        return cls.parse(data, text, name)

    @classmethod
    def parse(cls, data: Mapping[str, Any], text: str, file: str) -> Lock:
        """Return the lock of a parsed file.

        Args:
            data: the parsed TOML.
            text: the text of the file, to number lines.
            file: the path of the file, for messages.

        Raises:
            LockError: the content is invalid; the message names the line or key.
        """
        top = Table(data, file)
        top.only("format", "model", "versions", "machine", "options", "segment", *_PLAN_KEYS)
        if (form := top.get("format", int)) != FORMAT:
            raise top.error("format", f"{form} is not what this VTensor reads, which is {FORMAT}")
        rows = top.tables("segment")
        tables = [top, *rows]
        lines = [
            number
            for number, line in enumerate(text.split("\n"), 1)
            if line.strip() in ("[[node]]", f"[[{_SEGMENT}.node]]")
        ]
        if len(lines) != sum(len(table.tables("node")) for table in tables):
            lines = []  # the file spells a ``[[node]]`` line otherwise
        versions, machine = top.table("versions"), top.table("machine")
        machine.only("processor", "threads")
        shared: dict[str, Any] = {
            "model": top.get("model", str),
            "versions": {key: versions.get(key, str) for key in versions.data},
            "processor": machine.get("processor", str),
            "threads": machine.get("threads", int),
            "options": PlanOptions.read(top.table("options")),
            "file": file,
        }
        plans = []
        for table in tables:
            count = len(table.tables("node"))
            plans.append(cls(**shared, **_plan_of(table, file, lines[:count])))
            lines = lines[count:]
        segments: dict[str, Lock] = {}
        for row, plan in zip(rows, plans[1:], strict=True):
            row.only("name", *_PLAN_KEYS)
            if (name := row.get("name", str)) in segments:
                raise row.error("name", f"{name!r} is the name of another segment")
            segments[name] = plan
        if segments and plans[0].choices.rows:
            raise top.error("node", "belongs to a segment in a file that has segments")
        return replace(plans[0], segments=segments)

    def text(self) -> str:
        """Return the text of the lock file."""
        shared = {
            "format": FORMAT,
            "model": self.model,
            "versions": dict(self.versions),
            "machine": {"processor": self.processor, "threads": self.threads},
            "options": self.options.row(),
        }
        lines = [*toml_lines(shared | self._plan_rows())]
        for name, plan in self.segments.items():
            row = {"name": name, **plan._plan_rows()}
            lines += ["", f"[[{_SEGMENT}]]", *toml_lines(row, f"{_SEGMENT}.")]
        return _HEAD + "\n".join(lines) + "\n"

    def _plan_rows(self) -> dict[str, Any]:
        """Return the tables of the plan alone, without those that segments share."""
        if self.segments:
            inputs, outputs = input_rows(self.choices), dict(self.choices.outputs)
            return {"content": self.content, "inputs": inputs, "outputs": outputs}
        errors = errors_row(self.certificate)
        return {
            "content": self.content,
            "passes": list(self.passes),
            "inputs": input_rows(self.choices),
            "outputs": dict(self.choices.outputs),
            "node": node_rows(self.choices),
            **({"errors": errors} if errors else {}),
            "costs": self.costs,
            "certificate": proof_row(self.certificate),
        }

    def of_segment(self, name: str, computed: Iterable[str]) -> Lock | None:
        """Return the plan of a segment; None if the file has none, since data did not choose it.

        Args:
            name: the segment's name.
            computed: names of the segment's inputs that other segments compute.
        """
        plan = self.segments.get(name)
        return None if plan is None else replace(plan, computed=frozenset(computed))

    def write(self, file: str | os.PathLike[str]) -> None:
        """Write the lock file.

        Raises:
            InputError: the file cannot be written.
        """
        try:
            Path(file).write_text(self.text(), encoding="utf-8")
        except (OSError, ValueError) as error:
            pass_signals(error)
            raise InputError(f"{os.fspath(file)}: cannot be written: {reason(error)}") from error

    def layouts(self, source: Source) -> tuple[dict[str, Layout], dict[str, Layout]]:
        """Return the layouts of inputs by name, and the layouts of outputs by name.

        Args:
            source: the model that is to run.

        Raises:
            LockError: the model has other inputs or outputs.
        """
        inputs = self.choices.inputs
        ports = {
            port.name: port.of_rank(len(inputs[port.name].dims))
            for port in source.inputs
            if port.name in inputs
        }
        alike = all(
            name in ports
            and (ports[name].dtype, ports[name].dims) == (value.dtype, tuple(value.dims))
            for name, value in inputs.items()
        )
        if not alike or [*self.choices.outputs] != [port.name for port in source.outputs]:
            raise self.other("it has other inputs or outputs")
        entry = {name: value.layout for name, value in inputs.items()}
        outputs = self.options.output_layouts
        try:
            return (
                parse_layouts(entry, [*ports.values()], "inputs"),
                parse_layouts(outputs, source.outputs, "options.output_layouts", any_too=True),
            )
        except VTensorError as error:
            raise LockError(f"{self.file}, {error}") from error

    def check_segments(self, model_content: str) -> None:
        """Check that the file is that of a model in segments.

        Args:
            model_content: the digest of the model, whatever its sizes.

        Raises:
            LockError: it is that of another model, or of a model of one plan.
        """
        if not self.segments:
            raise self.other("data decide sizes in it, so that it runs in segments")
        if self.content != model_content:
            raise self.other("nodes, parameters or constants differ")

    def refused(self, faults: Sequence[tuple[int | None, str]]) -> LockError:
        """Return the error for lines that no longer hold.

        Args:
            faults: (index, reason) of each line. The index is that of the line's node in
                ``choices.rows``; None if the reason concerns the whole file.
        """
        rows = []
        for place, text in faults:
            prefix = "" if place is None else f"node {self.choices.rows[place].name!r}: "
            line = f":{self.lines[place]}" if place is not None and self.lines else ""
            rows.append(f"  {self.file}{line}: {prefix}{text}")
        verb = "holds" if len(rows) == 1 else "hold"
        head = f"{self.file}: {counted(len(rows), 'line')} of it no longer {verb}"
        return LockError("\n".join([head, *rows, f"  to fix: {self._remedy()}"]))

    def other(self, why: str) -> LockError:
        """Return the error for a file that belongs to another model.

        Args:
            why: what differs.
        """
        version = self.versions.get("vtensor", "another")
        by = "" if version == __version__ else f", or VTensor {version} reads it differently"
        return LockError(
            f"{self.file}: is the plan of another model, {self.model!r}: {why}{by}"
            f"\n  to fix: {self._remedy()}"
        )

    def _remedy(self) -> str:
        return "write it again with `vtensor lock`, or leave out plan="


def _plan_of(table: Table, file: str, lines: Sequence[int]) -> dict[str, Any]:
    """Return the fields of a ``Lock`` that are one plan's own.

    Args:
        table: the table of a file, or of a segment.
        file: the path of the file.
        lines: the line numbers of its nodes; empty if unknown.

    Raises:
        LockError: the content is invalid; the message names the line or key.
    """
    nodes = table.tables("node")
    for index, node in enumerate(nodes):
        line = f":{lines[index]}" if lines else ""
        nodes[index] = replace(node, where=f"{file}{line}: node {node.get('name', str)!r}")
    row = table.table("certificate")
    return {
        "content": table.get("content", str),
        "passes": table.texts("passes"),
        "choices": choices_of(table, nodes),
        "costs": costs_of(table.table("costs")),
        "certificate": (
            certificate_of(row, errors_of(table.table("errors"))) if row.data else None
        ),
        "lines": tuple(lines),
    }


def content(graph: Graph) -> str:
    """Return a digest of a network: of its text without its name, and of the bytes of its
    constants.
    """
    import numpy as np

    digest = sha256(str(graph).partition("\n")[2].encode())
    for array in graph.constants.values():
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return f"sha256:{digest.hexdigest()}"
