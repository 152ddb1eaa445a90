"""oneDNN as a library of VTensor: its description, its handlers, and its native binding.

Invokers return the routines of this package. Importing it loads nothing native; each routine's
module is imported when the routine is first asked for.
"""

from vtensor.language.public import names_of

__getattr__, __dir__ = names_of(__name__, __file__)
