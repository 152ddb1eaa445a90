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
from vtensor.language.traits import Cost, DefinedBy, Elementwise, Pointwise, Structural, Trait

K = TypeVar("K", bound=Trait)


@dataclass(frozen=True)
class OperatorInfo:
    """A registered operator: its class and its declaration.

    Attributes:
        name: the operator's name.
        cls: its class.
        inputs, outputs: the roles of its operands.
        many: the roles that stand for any number of operands.
        dims: rows of dims by role.
        onnx: its ONNX spellings.
        check: the source of its check.
        traits: its traits by type; see ``vtensor/language/traits.py``.
        file, line: the place of its class.
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
        """Return the trait of a type; None if the operator does not have it."""
        return cast("K | None", self.traits.get(kind))

    @property
    def elementwise(self) -> bool:
        """True if each element depends only on the inputs' elements at the same place."""
        return Elementwise in self.traits

    @property
    def structural(self) -> str:
        """The kind of the trait ``Structural``; empty without it."""
        trait = self.trait(Structural)
        return trait.kind if trait else ""

    @property
    def light(self) -> bool:
        """True if memory access takes most of its time: it is point-wise or a concatenation."""
        return Pointwise in self.traits or self.structural == "concat"

    @property
    def definition(self) -> str:
        """The library whose invoker defines the operator's values."""
        trait = self.trait(DefinedBy)
        return trait.library if trait else "numpy"

    def roles(self, inputs: int, outputs: int) -> tuple[str, ...]:
        """Return the role of each operand of a call: ``x w y``; variadic ones numbered, ``x0 x1``.

        Args:
            inputs, outputs: the numbers of operands.
        """
        return (*self._numbered(self.inputs, inputs), *self._numbered(self.outputs, outputs))

    @property
    def read_as(self) -> list[Spelling]:
        """The spellings by which ONNX nodes are read as this operator."""
        return [spelling for spelling in self.onnx if spelling.read is not read_elsewhere]

    @property
    def write(self) -> Write | None:
        """The function that writes the operator as ONNX nodes; None if there is none."""
        return next((spelling.write for spelling in self.onnx if spelling.write), None)

    def operations(self, op: object, inputs: Sequence[VTensor], outputs: Sequence[VTensor]) -> int:
        """Return the number of arithmetic operations of a call.

        An element-wise operator without the trait ``Cost`` has one for each element of its output.
        Any other operator without it has none: it only moves elements.
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
        index: the modules of operators that are not imported yet.
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
            wait: wait while another thread imports; if False, a pending operator is not found then.
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
            self._spelled = operators, spelled
        candidates = self._spelled[1].get(op_type, ())
        return [each for each in candidates if each.since <= opset <= (each.until or opset)]

    def structural(self, kind: str) -> OperatorInfo:
        """Return the operator with the trait ``Structural(kind)``.

        Raises:
            GraphError: no registered operator has it.
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
