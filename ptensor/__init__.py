"""PTensors, which are VTensors in a physical layout; layouts, memory, and evaluation of
invokers.
"""

from vtensor.language.public import names_of

__getattr__, __dir__ = names_of(__name__, __file__)
