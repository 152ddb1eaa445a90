"""Libraries as data: descriptions, the registry, and the code generated from them."""

from vtensor.language.public import names_of

__getattr__, __dir__ = names_of(__name__, __file__)
