"""What a file of operators imports: ``from vtensor.operators import Context, operator, param``."""

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
from vtensor.language.spelling import Naming, NodeReader, NodeWriter, Spelling, Write, written
from vtensor.language.traits import (
    Affine,
    Clamp,
    Cost,
    DefinedBy,
    Elementwise,
    Linear,
    Picks,
    Plus,
    Post,
    Structural,
    Thins,
)

__all__ = [
    "Affine",
    "Clamp",
    "Context",
    "Cost",
    "DefinedBy",
    "Elementwise",
    "Follower",
    "Linear",
    "Naming",
    "NodeReader",
    "NodeWriter",
    "Operator",
    "Pads",
    "Pair",
    "Picks",
    "Plus",
    "Post",
    "Spelling",
    "Structural",
    "Thins",
    "Write",
    "named",
    "operator",
    "param",
    "written",
]
