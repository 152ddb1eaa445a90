"""Eigen as a library of VTensor: its description, its handlers, and its native kernels.

The routines here are what invokers return. Importing them loads nothing native; each
comes with its module when it is first asked for.
"""

from vtensor.language.public import names_of

__getattr__, __dir__ = names_of(__name__, __file__)
