"""What a file of operators imports: ``from vtensor.operators import Context, operator, param``."""

from vtensor.language.operators import (
    Clamp,
    Context,
    Follower,
    Naming,
    NodeReader,
    NodeWriter,
    Operator,
    Pads,
    Pair,
    Plus,
    Spelling,
    Write,
    operator,
    param,
    written,
)

__all__ = [
    "Clamp",
    "Context",
    "Follower",
    "Naming",
    "NodeReader",
    "NodeWriter",
    "Operator",
    "Pads",
    "Pair",
    "Plus",
    "Spelling",
    "Write",
    "operator",
    "param",
    "written",
]
