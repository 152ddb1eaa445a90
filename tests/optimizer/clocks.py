"""Clocks that measure nothing: times are drawn, the same ones for the same question."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from libdesc.transforms import LayoutChange
from optimizer.choice.problem import Clock
from ptensor.evaluation import Basis
from resolver.addresses import addresses
from resolver.lowered import OpNode
from vtensor.language.tensor import VTensor


@dataclass(frozen=True)
class Drawn(Clock):
    """Up to a thousand nanoseconds for each row and each Transform; some rows have no time.

    Attributes:
        seed: another number, other times.
        unknown: how many rows have none, of one.
    """

    seed: int
    unknown: float = 0.1

    @property
    def basis(self) -> Basis:
        """They pass for measured ones."""
        return "measured"

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int | None:
        drawn = random.Random(
            f"{self.seed} {node.op_name} {node.variant.layouts}{node.variant.kernel}"
        )
        return None if drawn.random() < self.unknown else drawn.randint(1, 1000)

    def transform(self, value: VTensor, change: LayoutChange) -> int:
        ends = [addresses(str(layout), value.dims) for layout in (change.source, change.target)]
        return random.Random(f"{self.seed} {value.dims} {ends}").randint(1, 1000)
