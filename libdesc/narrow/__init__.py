"""Kernels for narrow integers as a library of VTensor: its description, handlers and routines.

Invokers return the routines of this package. Importing the package loads nothing native.
"""

from vtensor.language.public import names_of

__getattr__, __dir__ = names_of(__name__, __file__)
