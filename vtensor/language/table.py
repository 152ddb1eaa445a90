"""What is registered of operators, and the table of it: by name, by spelling, by trait."""

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
    """A registered operator: its class and everything that was declared of it.

    Attributes:
        many: the roles that stand for any number of operands.
        traits: what it declares beside its dims, by kind; see ``vtensor/language/traits.py``.
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
        """The trait of a kind, if the operator has it."""
        return cast("K | None", self.traits.get(kind))

    @property
    def elementwise(self) -> bool:
        """The value at a place depends only on the inputs' values at that place."""
        return Elementwise in self.traits

    @property
    def structural(self) -> str:
        """The kind of the trait ``Structural``; empty without it."""
        found = self.trait(Structural)
        return found.kind if found else ""

    @property
    def light(self) -> bool:
        """Memory takes its time: it is point-wise, or puts tensors together."""
        return Pointwise in self.traits or self.structural == "concat"

    @property
    def definition(self) -> str:
        """The library whose invoker says what the values are."""
        found = self.trait(DefinedBy)
        return found.library if found else "numpy"

    def roles(self, inputs: int, outputs: int) -> tuple[str, ...]:
        """The role of each operand of a call: ``x w y``; a variadic one is numbered, ``x0 x1``."""
        return (*self._numbered(self.inputs, inputs), *self._numbered(self.outputs, outputs))

    @property
    def read_as(self) -> list[Spelling]:
        """The spellings in which ONNX's nodes are read as this operator."""
        return [spelling for spelling in self.onnx if spelling.read is not read_elsewhere]

    @property
    def write(self) -> Write | None:
        """How the operator is written as nodes of ONNX; None where it is not."""
        return next((spelling.write for spelling in self.onnx if spelling.write), None)

    def operations(self, op: object, inputs: Sequence[VTensor], outputs: Sequence[VTensor]) -> int:
        """How many arithmetic operations a call takes.

        An operator without the trait ``Cost`` takes one for each element of its output if it is
        element-wise, else none: it only moves elements.
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
    """Operators by name, and by the ONNX operators that they are read from.

    Attributes:
        index: where those are that are not imported yet. Who asks for one by name, by spelling or
            by trait has its module imported; who asks for all, or for a name that the index does
            not have, has every one.
    """

    def __init__(self, *infos: OperatorInfo) -> None:
        self.index = Index()
        super().__init__({info.name: info for info in infos})
        self._spelled: tuple[list[OperatorInfo], dict[str, list[Spelling]]] = ([], {})
        self._structural: dict[str, OperatorInfo] = {}

    def find(self, name: str, wait: bool = True) -> OperatorInfo | None:
        """An operator that is registered or in the index; ``wait`` as for ``Index.load``."""
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
        """The spellings of an ONNX operator that hold in an opset."""
        self.index.load_spelled(op_type)
        operators = list(self.data.values())
        if self._spelled[0] != operators:
            spelled: dict[str, list[Spelling]] = {}
            last = len(self.index.places)
            for info in sorted(operators, key=lambda one: self.index.places.get(one.name, last)):
                for spelling in info.read_as:
                    spelled.setdefault(spelling.op_type, []).append(spelling)
            self._spelled = operators, spelled
        found = self._spelled[1].get(op_type, ())
        return [one for one in found if one.since <= opset <= (one.until or opset)]

    def structural(self, kind: str) -> OperatorInfo:
        """The operator with the trait ``Structural(kind)``.

        Raises:
            GraphError: none has it; operators are registered when their files are imported.
        """
        found = self._structural.get(kind)
        if found is not None and self.data.get(found.name) is found:
            return found
        self.index.load_structural(kind)
        for info in list(self.data.values()):
            if info.structural == kind:
                self._structural[kind] = info
                return info
        raise GraphError(f"no operator is registered with the trait Structural({kind!r})")
