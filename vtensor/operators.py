"""The names for files of operators: ``from vtensor.operators import Context, operator, param``."""

from vtensor.language.expression import Expression, select
from vtensor.language.operators import (
    Context,
    Follower,
    Operator,
    Pads,
    Pair,
    named,
    operator,
    param,
)
from vtensor.language.rules import Match
from vtensor.language.spelling import Naming, NodeReader, NodeWriter, Spelling, Write, written
from vtensor.language.traits import (
    Affine,
    Commutes,
    Cost,
    DefinedBy,
    Elementwise,
    Jumps,
    Linear,
    Picks,
    Pointwise,
    Stretches,
    Structural,
    Thins,
)

__all__ = [
    "Affine",
    "Commutes",
    "Context",
    "Cost",
    "DefinedBy",
    "Elementwise",
    "Expression",
    "Follower",
    "Jumps",
    "Linear",
    "Match",
    "Naming",
    "NodeReader",
    "NodeWriter",
    "Operator",
    "Pads",
    "Pair",
    "Picks",
    "Pointwise",
    "Spelling",
    "Stretches",
    "Structural",
    "Thins",
    "Write",
    "named",
    "operator",
    "param",
    "select",
    "written",
]
