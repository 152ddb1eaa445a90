"""Networks to draw, and how pages are read."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np

from ptensor.layout import Layout
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.lowered import LoweredGraph
from tests.libraries.bench import Bench
from tests.resolver.networks import IMAGE, mix
from vtensor.language.graph import Graph

#: Names with text that is syntax in SVG, HTML, JSON or a browser.
HOSTILE = (
    "</script><script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>&amp;",
    "]]><!--</svg></title></style>",
    "\x00\x1b[31m\ud800\uffff\u2028",
    "${title} $data \\u003c",
    "__proto__",
)


def scoped(bench: Bench, names: tuple[str, ...] = ()) -> Graph:
    """Return a stem, two scopes with two nodes each, one with the only Transform, and a join."""
    names = names or ("x", "stem", "a/one", "a/two", "b/one", "b/two")
    first, stem, one, two, three, four = names
    g = Graph("scoped")
    x = mix(bench, "NCHW NCHW", g.input(first, IMAGE), graph=g, name=stem)
    left = mix(bench, "NCHW NCHW", x, graph=g, name=one)
    left = mix(bench, "NCHW NCHW", left, graph=g, name=two)
    right = mix(bench, "NHWC NCHW", x, graph=g, name=three)
    right = mix(bench, "NCHW NCHW", right, graph=g, name=four)
    w = g.constant(np.ones(16, np.float32), "C", "w")
    g.output(mix(bench, "NCHW NCHW C NHWC", left, right, w, graph=g, name="join"), "y")
    return g.seal()


def extended(graph: Graph, delivery: str = "") -> LoweredGraph:
    """Resolve a graph and add its Transforms, also to a layout of the output ``y``."""
    return extend(resolve(graph), {"y": Layout(delivery)} if delivery else None)


class Page(HTMLParser):
    """A page as a browser parses it: elements, attributes, and texts by element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Note a text with the element that was opened last."""
        self.texts.append((self.elements[-1][0] if self.elements else "", data))

    def scripts(self) -> list[str]:
        """Return the texts of script elements."""
        return [text for tag, text in self.texts if tag == "script" and text.strip()]
