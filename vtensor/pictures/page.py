"""Scenes as one self-contained HTML page, which can fold scopes, search and show details."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from vtensor.pictures.layered import LONGEST
from vtensor.pictures.legend import Legend, make_legend
from vtensor.pictures.scene import BEND_SPACE, BOX_SPACE, Scene
from vtensor.pictures.svg import (
    HEIGHT,
    MARGIN,
    PITCH,
    WIDTH,
    asset,
    draw_legend,
    draw_scene,
    text_of,
)

SCRIPTS = ("folding.js", "view.js", "page.js")


def html_page(title: str, scenes: Sequence[Scene]) -> str:
    """Return a page of HTML; its security policy forbids to load files and to run any other script.

    Args:
        title: the model's name.
        scenes: the scenes, which are shown side by side; their names may have any characters.
    """
    legend, script = make_legend(scenes), "".join(map(asset, SCRIPTS))
    return Template(asset("page.html")).substitute(
        title=html.escape(text_of(title)),
        style=asset("picture.css") + asset("page.css"),
        legend=_legend(legend),
        views="".join(_view(scene, legend) for scene in scenes),
        data=_json(_data(scenes, legend)),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _json(data: Mapping[str, Any]) -> str:
    """Return JSON without ``<``, so that it cannot end the script element around it."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _legend(legend: Legend) -> str:
    picture = Element("svg", {"class": "legend", "height": "24"})
    length = draw_legend(SubElement(picture, "g", transform="translate(2 16)"), legend)
    picture.set("width", f"{length:g}")
    return tostring(picture, encoding="unicode")


def _view(scene: Scene, legend: Legend) -> str:
    picture = Element("svg")
    draw_scene(picture, scene, legend)
    caption = f"<figcaption>{html.escape(text_of(scene.title))}</figcaption>"
    return f"<figure>{caption}{tostring(picture, encoding='unicode')}</figure>"


def _data(scenes: Sequence[Scene], legend: Legend) -> dict[str, Any]:
    """Return the data of the page's script, in the order of the elements of ``draw_scene``."""
    return {
        "size": {
            "width": WIDTH,
            "height": HEIGHT,
            "pitch": PITCH,
            "margin": MARGIN,
            "boxSpace": BOX_SPACE,
            "bendSpace": BEND_SPACE,
            "longest": LONGEST,
        },
        "libraries": dict(legend.libraries),
        "views": [_view_data(scene) for scene in scenes],
    }


def _view_data(scene: Scene) -> dict[str, Any]:
    boxes = [
        {
            "key": f"{box.kind}:{box.name}",
            "kind": box.kind,
            "name": box.name,
            "title": box.title,
            "library": box.library,
            "form": box.form,
            "scope": box.scope,
            "hint": box.hint,
            "details": box.details,
            "row": row,
            "x": x,
        }
        for box, row, x in zip(scene.boxes, scene.rows, scene.x, strict=True)
    ]
    arrows = [
        {
            "source": arrow.source,
            "target": arrow.target,
            "value": arrow.value,
            "layout": arrow.layout,
            "hint": arrow.hint,
            "bends": arrow.bends,
        }
        for arrow in scene.arrows
    ]
    return {"boxes": boxes, "arrows": arrows}
