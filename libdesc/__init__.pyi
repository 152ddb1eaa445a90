from .guide import Decline as Decline
from .guide import guideline as guideline
from .registry import Registration as Registration
from .registry import invoker as invoker
from .registry import register as register
from .registry import without_invoker as without_invoker
from .routine import Routine as Routine
from .rules import rewrite as rewrite
