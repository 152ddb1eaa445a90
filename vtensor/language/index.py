"""The index of operators and rewrite rules, whose modules are imported when they are needed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from vtensor.language.process.forks import locked, process_lock

#: The lock that is held while modules that register operators are imported; a fork waits for it.
#: A thread that holds another lock of ``process_lock`` never acquires this one.
importing = process_lock(0)


class Row(NamedTuple):
    """The entry of an operator or a rule in the index.

    Attributes:
        module: the module that registers the operator or rule.
        name: the name of the operator or rule.
        kind: for an operator, the kind of its trait ``Structural``, empty if it lacks the trait.
            For a rule, the operators of its replacement, with ``+`` between them.
        given: for an operator, the ONNX operators that are read as it. For a rule, a text for each
            alternative of its pattern: the operators that a graph needs so that it can match, with
            ``+`` between them.
        rule: True for a rule, False for an operator.
    """

    module: str
    name: str
    kind: str
    given: tuple[str, ...]
    rule: bool = False


def row_of(line: str, package: str) -> Row:
    """Return the entry that a line of an index file describes.

    Args:
        line: the line.
        package: the package that has the modules of the index.

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
    """The index of operators and rewrite rules: which module registers each, imported or not yet.

    Args:
        rows: the entries. Operators that are read from the same ONNX operator are tried in this
            order.
        loaded: called after a module was imported, with the names of the module's operators.

    Attributes:
        pending: the module of each operator, by the operator's name; modules that have been
            imported are left out.
        pending_rules: the module of each rule, by the rule's name; likewise.
        places: the index of each operator among the operators in ``rows``, by the operator's name.
        rules: by name of each rule, its entry.
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
            wait: what to do while another thread imports. True waits; False returns at once,
                without importing. A module that registers its operators passes False, since the
                other thread may itself wait for the import of that module.
        """
        if operator in self.pending:
            self._load_module(self.pending[operator], wait)

    def _load_module(self, module: str, wait: bool) -> None:
        if module in sys.modules:
            self._import(module)  # waits if another thread is importing the module
        else:
            acquire, work = partial(importing.acquire, blocking=wait), partial(self._import, module)
            locked(importing, acquire, work)

    def load_spelled(self, op_type: str) -> None:
        """Import the modules of all operators that nodes of an ONNX operator may be read as."""
        for operator in self._onnx.get(op_type, ()):
            self.load(operator)

    def load_structural(self, kind: str) -> None:
        """Import the module of the operator with the trait ``Structural(kind)``."""
        self.load(self._kinds.get(kind, ""))

    def load_rules(self, operators: Collection[str]) -> None:
        """Import the modules of the rules whose patterns may match in a graph.

        The operators in such a rule's replacement count as operators of the graph, too. They may
        occur in the pattern of another rule, which may then match.

        Args:
            operators: the names of the graph's operators.
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
        """Import every module of operators and rules.

        A thread that is importing one of these modules may call this, too.
        """
        modules = dict.fromkeys((*self.pending.values(), *self.pending_rules.values()))
        if modules:
            with importing:
                for module in modules:
                    self._import(module)

    def _import(self, module: str) -> None:
        """Import a module, and remove its operators and rules from those that are still to be
        imported.

        They are not removed if the module is still being imported, by an outer call.
        """
        spec = importlib.import_module(module).__spec__
        if not getattr(spec, "_initializing", False):
            names = _remove_names(self.pending, module)
            _remove_names(self.pending_rules, module)
            if names and self._loaded is not None:
                self._loaded(names)


def _name_set(names: str) -> set[str]:
    return set(names.split("+"))


def _remove_names(pending: dict[str, str], module: str) -> list[str]:
    """Remove a module's operators or rules from ``pending``, and return their names.

    Args:
        pending: by name of an operator or a rule, its module.
        module: the module.
    """
    names = [name for name, its_module in list(pending.items()) if its_module == module]
    for name in names:
        pending.pop(name, None)
    return names
