"""Libraries as data: descriptions, the registry, and the code that is generated from them."""

from libdesc.guide import guideline
from libdesc.registry import Registration, invoker, register, without_invoker
from libdesc.routine import Routine
from libdesc.rules import rewrite
from ptensor.evaluation import Decline

__all__ = [
    "Decline",
    "Registration",
    "Routine",
    "guideline",
    "invoker",
    "register",
    "rewrite",
    "without_invoker",
]
