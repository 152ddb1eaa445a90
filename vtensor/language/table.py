"""The table of registered operators: by name, by ONNX spelling, by trait."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeVar, cast

from vtensor.errors import GraphError
from vtensor.language.checks import CheckSource
from vtensor.language.dims import DimSpec
from vtensor.language.index import Index
from vtensor.language.records import dataclass
from vtensor.language.spelling import Spelling, Write, read_elsewhere
from vtensor.language.tensor import VTensor
from vtensor.language.traits import (
    Cost,
    DefinedBy,
    Elementwise,
    Linear,
    Pointwise,
    Structural,
    Trait,
)

K = TypeVar("K", bound=Trait)


@dataclass(frozen=True)
class OperatorInfo:
    """A registered operator: its class and its declaration.

    Attributes:
        name: the operator's name.
        cls: the operator's class.
        inputs, outputs: the roles of the operands, names such as ``x``, ``w`` and ``y``.
        many: the roles that stand for any number of operands.
        dims: by role, the dim names that are declared for the operand.
        onnx: the operator's ONNX spellings.
        check: the part of the declaration from which the check of a call is generated.
        traits: the operator's traits by type; see ``vtensor/language/traits.py``.
        file, line: where the operator's class is defined.
    """

    name: str
    cls: type
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    many: frozenset[str]
    dims: Mapping[str, DimSpec]
    onnx: tuple[Spelling, ...]
    check: CheckSource
    traits: Mapping[type[Trait], Trait] = field(default_factory=dict)
    file: str = ""
    line: int = 0

    def trait(self, kind: type[K]) -> K | None:
        """Return the operator's trait of the type ``kind``; None if there is none."""
        return cast("K | None", self.traits.get(kind))

    @property
    def elementwise(self) -> bool:
        """True if an element of the output depends only on the inputs' elements at its indices."""
        return Elementwise in self.traits

    @property
    def structural(self) -> str:
        """The ``kind`` of the operator's trait ``Structural``; empty without the trait."""
        trait = self.trait(Structural)
        return trait.kind if trait else ""

    @property
    def light(self) -> bool:
        """True if the operator is point-wise or a concatenation: memory access limits its speed."""
        return Pointwise in self.traits or self.structural == "concat"

    @property
    def product(self) -> bool:
        """True if the operator is linear in an operand and adds up many terms for each element: the
        number of its operations depends on more than one size.
        """
        cost = self.trait(Cost)
        return Linear in self.traits and cost is not None and callable(cost.count)

    @property
    def definition(self) -> str:
        """The name of the library whose invoker is the operator's definition."""
        trait = self.trait(DefinedBy)
        return trait.library if trait else "numpy"

    def roles(self, inputs: int, outputs: int) -> tuple[str, ...]:
        """Return the role of each operand of a call: ``x w y``.

        If a role stands for any number of operands, a number is appended for each of them: ``x0
        x1``.

        Args:
            inputs, outputs: the numbers of inputs and outputs of the call.
        """
        return (*self._numbered(self.inputs, inputs), *self._numbered(self.outputs, outputs))

    @property
    def read_as(self) -> list[Spelling]:
        """The spellings from which the operator is read, without those that are only written."""
        return [spelling for spelling in self.onnx if spelling.read is not read_elsewhere]

    @property
    def write(self) -> Write | None:
        """The function that writes the operator as ONNX nodes; None if no spelling has one."""
        return next((spelling.write for spelling in self.onnx if spelling.write), None)

    def operations(self, op: object, inputs: Sequence[VTensor], outputs: Sequence[VTensor]) -> int:
        """Return the number of arithmetic operations of a call.

        The trait ``Cost`` says the number. If an element-wise operator lacks the trait, it has one
        operation for each element of its first output. Any other operator without the trait has
        none, since it only moves elements.
        """
        cost = self.trait(Cost)
        if cost is None:
            return self.elementwise * outputs[0].num_elements
        if isinstance(cost.count, int):
            return cost.count * inputs[0].num_elements
        return cost.count(op, *inputs, *outputs)

    def _numbered(self, roles: tuple[str, ...], count: int) -> tuple[str, ...]:
        if self.many.isdisjoint(roles):
            return roles[:count]
        *head, last = roles
        return (*head, *(f"{last}{i}" for i in range(count - len(head))))


class OperatorTable(UserDict[str, OperatorInfo]):
    """Operators by name, by ONNX spelling and by trait.

    A look-up imports the operator's module if necessary. Iteration, and a look-up of a name that
    the index does not have, import all modules.

    Attributes:
        index: says which module registers each operator, also of modules not imported yet.
    """

    def __init__(self, *infos: OperatorInfo) -> None:
        self.index = Index()
        super().__init__({info.name: info for info in infos})
        self._spelled: tuple[list[OperatorInfo], dict[str, list[Spelling]]] = ([], {})
        self._structural: dict[str, OperatorInfo] = {}

    def find(self, name: str, wait: bool = True) -> OperatorInfo | None:
        """Return an operator; None if it is neither registered nor in the index.

        Args:
            name: the operator's name.
            wait: True waits while another thread imports modules; False then returns None for an
                operator that is not imported yet.
        """
        self.index.load(name, wait)
        return self.data.get(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (self.find(name) is not None or name in self._all())

    def __getitem__(self, name: str) -> OperatorInfo:
        return self.find(name) or self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, OperatorInfo]:
        self.index.load_all()
        return self.data

    def spellings(self, op_type: str, opset: int) -> list[Spelling]:
        """Return the spellings of an ONNX operator that are valid in an opset."""
        self.index.load_spelled(op_type)
        operators = list(self.data.values())
        if self._spelled[0] != operators:
            spelled: dict[str, list[Spelling]] = {}
            last = len(self.index.places)
            for info in sorted(operators, key=lambda op: self.index.places.get(op.name, last)):
                for spelling in info.read_as:
                    spelled.setdefault(spelling.op_type, []).append(spelling)
            for known in spelled.values():  # last those that need a run to know sizes
                known.sort(key=lambda spelling: spelling.counts is not None)
            self._spelled = operators, spelled
        candidates = self._spelled[1].get(op_type, ())
        return [each for each in candidates if each.since <= opset <= (each.until or opset)]

    def spelled(self, op_type: str) -> list[OperatorInfo]:
        """Return the operators that have a spelling of an ONNX operator, in any opset."""
        self.index.load_spelled(op_type)
        infos = self.data.values()
        return [info for info in infos if any(each.op_type == op_type for each in info.onnx)]

    def structural(self, kind: str) -> OperatorInfo:
        """Return the operator with the trait ``Structural(kind)``.

        Raises:
            GraphError: no registered operator has the trait.
        """
        known = self._structural.get(kind)
        if known is not None and self.data.get(known.name) is known:
            return known
        self.index.load_structural(kind)
        for info in list(self.data.values()):
            if info.structural == kind:
                self._structural[kind] = info
                return info
        raise GraphError(f"no operator is registered with the trait Structural({kind!r})")
