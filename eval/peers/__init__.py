"""Our graphs in the terms of other frameworks, so that the same network is timed beside ours.

``tensorflow.py`` and ``pytorch.py`` say each operator as a user of the framework would; ``walk.py``
goes through the graph, ``alike.py`` has what both say alike. Both frameworks come with
``pip install "vtensor-layouts[peers]"``.
"""

from __future__ import annotations

from vtensor.errors import PeerError


class CannotBuild(PeerError):
    """A framework cannot express a graph; the message names node and operator."""
