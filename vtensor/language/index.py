"""Where operators and rules are that nobody has imported yet: they are found when needed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from vtensor.language.forks import locked, process_lock

#: Held while modules are imported that register themselves: imports are the process's, and a fork
#: waits for them. The locks of other things are never held when it is taken.
importing = process_lock(0)


class Row(NamedTuple):
    """Where an operator or a rule is, and what it is asked for by, beside its name.

    Attributes:
        kind: of an operator's trait ``Structural``, or empty; of a rule the operators that it
            makes, with ``+`` between them.
        given: the operators of ONNX that are read as an operator; of a rule, for each choice of its
            pattern, the operators that a graph must have, likewise.
        rule: it is a rule.
    """

    module: str
    name: str
    kind: str
    given: tuple[str, ...]
    rule: bool = False


def row_of(line: str, package: str) -> Row:
    """A line of an index.

    >>> row_of("reshape Reshape reshape: Reshape Flatten", "ops")[1:]
    ('Reshape', 'reshape', ('Reshape', 'Flatten'), False)
    >>> row_of("rule activations swish Swish: Mul+Sigmoid Add+Div+Exp+Neg", "ops")[1:]
    ('swish', 'Swish', ('Mul+Sigmoid', 'Add+Div+Exp+Neg'), True)
    """
    words, _, given = line.partition(":")
    rule = words.startswith("rule ")
    file, name, *kind = words.removeprefix("rule ").split()
    return Row(f"{package}.{file}", name, "".join(kind), tuple(given.split()), rule)


class Index:
    """In which modules operators and rewrite rules are, and which are still to be imported.

    Args:
        rows: in the order in which operators are tried that ONNX spells alike, and rules.
        loaded: called with the names of operators when their module has been imported.

    Attributes:
        pending, pending_rules: the modules of operators and rules that are still to be imported.
        places: all operators, each with its place in that order.
        rules: all rules.
    """

    def __init__(
        self,
        rows: Iterable[Row] = (),
        loaded: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        self._loaded = loaded
        every = list(rows)
        operators = [row for row in every if not row.rule]
        self.rules = {row.name: row for row in every if row.rule}
        self.pending = {row.name: row.module for row in operators}
        self.pending_rules = {name: row.module for name, row in self.rules.items()}
        self.places = {row.name: place for place, row in enumerate(operators)}
        self._kinds = {row.kind: row.name for row in reversed(operators) if row.kind}
        self._onnx: dict[str, list[str]] = {}
        for row in operators:
            for op_type in row.given:
                self._onnx.setdefault(op_type, []).append(row.name)

    def load(self, operator: str, wait: bool = True) -> None:
        """Import the module of an operator, if that is known and has not been done.

        Args:
            wait: False where a module registers itself, whose import another thread may wait for:
                nothing is done then while another thread imports.
        """
        if operator in self.pending:
            self._ask(self.pending[operator], wait)

    def _ask(self, module: str, wait: bool) -> None:
        if module in sys.modules:
            self._import(module)  # here, or by another thread, which this one waits for
        else:
            acquire, work = partial(importing.acquire, blocking=wait), partial(self._import, module)
            locked(importing, acquire, work)

    def load_spelled(self, op_type: str) -> None:
        """Import the operators as which an operator of ONNX is read."""
        for operator in self._onnx.get(op_type, ()):
            self.load(operator)

    def load_structural(self, kind: str) -> None:
        """Import the operator with the trait ``Structural(kind)``."""
        self.load(self._kinds.get(kind, ""))

    def load_rules(self, operators: Collection[str]) -> None:
        """Import the rules that a graph with these operators may hold the patterns of.

        What a rule makes may be in the pattern of another.
        """
        known, rest, grown = set(operators), dict(self.rules), True
        while grown:
            met = [row for row in rest.values() if any(_all(one) <= known for one in row.given)]
            grown = bool(met)
            for row in met:
                known |= _all(row.kind)
                del rest[row.name]
                if row.name in self.pending_rules:
                    self._ask(row.module, True)

    def load_all(self) -> None:
        """Import every operator; the thread that does so already goes on."""
        modules = dict.fromkeys((*self.pending.values(), *self.pending_rules.values()))
        if modules:
            with importing:
                for module in modules:
                    self._import(module)

    def _import(self, module: str) -> None:
        """Import a module; its operators are pending until its last line has run."""
        spec = importlib.import_module(module).__spec__
        if not getattr(spec, "_initializing", False):
            names = _taken(self.pending, module)
            _taken(self.pending_rules, module)
            if names and self._loaded is not None:
                self._loaded(names)


def _all(names: str) -> set[str]:
    return set(names.split("+"))


def _taken(pending: dict[str, str], module: str) -> list[str]:
    """The names that a module has; they are pending no longer."""
    names = [name for name, where in list(pending.items()) if where == module]
    for name in names:
        pending.pop(name, None)
    return names
