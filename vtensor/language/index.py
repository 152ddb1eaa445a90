"""The index of operators and rewrite rules, whose modules are imported when they are needed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from vtensor.language.process.forks import locked, process_lock

#: Held while modules that register operators are imported; a fork waits for it. A thread that holds
#: another lock never acquires it.
importing = process_lock(0)


class Row(NamedTuple):
    """The entry of an operator or a rule in the index.

    Attributes:
        module: the module that registers it.
        name: its name.
        kind: of an operator, the kind of its trait ``Structural``, or empty; of a rule, the
            operators of its replacement, with ``+`` between them.
        given: of an operator, the ONNX operators that are read as it; of a rule, for each
            alternative of its pattern, the operators that a graph must have, with ``+`` between
            them.
        rule: it is a rule.
    """

    module: str
    name: str
    kind: str
    given: tuple[str, ...]
    rule: bool = False


def row_of(line: str, package: str) -> Row:
    """Return the entry of a line of an index file.

    Args:
        line: the line.
        package: the package of the modules that the index names.

    >>> row_of("reshape Reshape reshape: Reshape Flatten", "ops")[1:]
    ('Reshape', 'reshape', ('Reshape', 'Flatten'), False)
    >>> row_of("rule activations swish Swish: Mul+Sigmoid Add+Div+Exp+Neg", "ops")[1:]
    ('swish', 'Swish', ('Mul+Sigmoid', 'Add+Div+Exp+Neg'), True)
    """
    words, _, keys = line.partition(":")
    rule = words.startswith("rule ")
    file, name, *kind = words.removeprefix("rule ").split()
    return Row(f"{package}.{file}", name, "".join(kind), tuple(keys.split()), rule)


class Index:
    """The modules of operators and rewrite rules, and the modules that are not imported yet.

    Args:
        rows: the entries. Operators with one ONNX spelling are tried in this order.
        loaded: called with the names of a module's operators when it has been imported.

    Attributes:
        pending, pending_rules: by operator and by rule, the modules that are not imported yet.
        places: all operators, each with its place in the order of ``rows``.
        rules: all rules by name.
    """

    def __init__(
        self,
        rows: Iterable[Row] = (),
        loaded: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        self._loaded = loaded
        entries = list(rows)
        operators = [row for row in entries if not row.rule]
        self.rules = {row.name: row for row in entries if row.rule}
        self.pending = {row.name: row.module for row in operators}
        self.pending_rules = {name: row.module for name, row in self.rules.items()}
        self.places = {row.name: place for place, row in enumerate(operators)}
        self._kinds = {row.kind: row.name for row in reversed(operators) if row.kind}
        self._onnx: dict[str, list[str]] = {}
        for row in operators:
            for op_type in row.given:
                self._onnx.setdefault(op_type, []).append(row.name)

    def load(self, operator: str, wait: bool = True) -> None:
        """Import the module of an operator, if the index has it and it is not imported yet.

        Args:
            operator: the operator's name.
            wait: wait while another thread imports; if False, do nothing then. A module that
                registers its operators passes False, as another thread may wait for its import.
        """
        if operator in self.pending:
            self._load_module(self.pending[operator], wait)

    def _load_module(self, module: str, wait: bool) -> None:
        if module in sys.modules:
            self._import(module)  # here, or by another thread, which this one waits for
        else:
            acquire, work = partial(importing.acquire, blocking=wait), partial(self._import, module)
            locked(importing, acquire, work)

    def load_spelled(self, op_type: str) -> None:
        """Import the operators that an ONNX operator may be read as."""
        for operator in self._onnx.get(op_type, ()):
            self.load(operator)

    def load_structural(self, kind: str) -> None:
        """Import the operator with the trait ``Structural(kind)``."""
        self.load(self._kinds.get(kind, ""))

    def load_rules(self, operators: Collection[str]) -> None:
        """Import the rules whose patterns may match in a graph with these operators.

        The operators of a rule's replacement count, too: they may be in another rule's pattern.
        """
        known, others, grown = set(operators), dict(self.rules), True
        while grown:
            matching = [
                row
                for row in others.values()
                if any(_name_set(needed) <= known for needed in row.given)
            ]
            grown = bool(matching)
            for row in matching:
                known |= _name_set(row.kind)
                del others[row.name]
                if row.name in self.pending_rules:
                    self._load_module(row.module, True)

    def load_all(self) -> None:
        """Import every module of operators and rules; a thread that is importing may call this."""
        modules = dict.fromkeys((*self.pending.values(), *self.pending_rules.values()))
        if modules:
            with importing:
                for module in modules:
                    self._import(module)

    def _import(self, module: str) -> None:
        """Import a module; its operators stay pending until its last line has run."""
        spec = importlib.import_module(module).__spec__
        if not getattr(spec, "_initializing", False):
            names = _remove_names(self.pending, module)
            _remove_names(self.pending_rules, module)
            if names and self._loaded is not None:
                self._loaded(names)


def _name_set(names: str) -> set[str]:
    return set(names.split("+"))


def _remove_names(pending: dict[str, str], module: str) -> list[str]:
    """Remove the names of a module from the pending ones, and return them."""
    names = [name for name, its_module in list(pending.items()) if its_module == module]
    for name in names:
        pending.pop(name, None)
    return names
