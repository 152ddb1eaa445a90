"""Translation of VTensor's graphs for other frameworks, so that they are timed on the same network.

``tensorflow.py`` and ``pytorch.py`` express each operator as a user of the framework would;
``walk.py`` goes through the graph, ``alike.py`` has the operators that both express alike. Both
frameworks come with ``pip install "vtensor-layouts[peers]"``.
"""

from __future__ import annotations

from vtensor.errors import PeerError


class CannotBuild(PeerError):
    """A framework cannot express a graph; the message names node and operator."""
