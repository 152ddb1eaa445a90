"""Pictures of plans: every node is there once, names are only text, nothing is loaded."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ptensor.form import Form
from resolver.lowered import LoweredGraph, OpNode
from tests.libraries.bench import Bench
from tests.libraries.command import vtensor
from tests.pictures.support import HOSTILE, Page, extended, scoped
from vtensor.errors import InputError
from vtensor.pictures.files import plan_scenes, write_pictures
from vtensor.pictures.legend import BANDS, DASHES, STROKES, TINTS
from vtensor.pictures.page import html_page
from vtensor.pictures.scene import make_scene
from vtensor.pictures.svg import svg_picture, text_of
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.session import Session

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def plan(bench: Bench) -> Plan:
    """Return a plan whose graph before the passes had a Transform more."""
    graph = scoped(bench)
    with Session(graph, output_layouts={"y": "NHWC"}) as session:
        plan = session.plan
    plan.resolved = extended(graph)
    return plan


def boxes(svg: str, kind: str = "") -> list[ElementTree.Element]:
    """Return the boxes of a picture."""
    groups = ElementTree.fromstring(svg).iter(f"{SVG}g")
    return [group for group in groups if group.get("class", "").startswith(f"box {kind}")]


def hints(svg: str, kind: str = "") -> list[str]:
    """Return the descriptions of a picture's boxes."""
    return [box.findtext(f"{SVG}title") or "" for box in boxes(svg, kind)]


def test_every_node_is_in_the_picture_once(bench: Bench) -> None:
    graph = extended(scoped(bench))
    svg = svg_picture([make_scene("a graph", graph)])
    kinds = Counter(box.get("class") for box in boxes(svg))
    assert len(list(graph.transforms())) == 2
    assert kinds == {"box input": 1, "box output": 1, "box operator": 6, "box transform": 2}
    assert len(boxes(svg)) == len(graph.nodes) - len({node.name for node in graph.ahead()}) + 2
    for name in ("stem", "a/one", "a/two", "b/one", "b/two", "join"):
        assert hints(svg).count(f"Mix {name} on toy") == 1
    marked = [box for box in boxes(svg) if box.find(f"{SVG}polygon") is not None]
    assert {box.get("class") for box in marked} == {"box transform"}
    assert [box.findtext(f"{SVG}text") for box in marked] == ["NCHW → NHWC", "NHWC → NCHW"]
    first, second = hints(svg, "transform")
    assert first.startswith("Mix b/one (toy) requires this layout of ")
    assert second.startswith("output y is delivered in a layout that Mix ")
    for private in ("/work/", str(Path.home())):
        assert private not in first + second


def test_scopes_come_from_names_and_else_from_inputs(bench: Bench) -> None:
    scopes = {box.name: box.scope for box in make_scene("", extended(scoped(bench))).boxes}
    assert [scopes[name] for name in ("x", "stem", "a/two", "b/one")] == ["", "", "a", "b"]
    assert scopes["join"] == "b"  # the scope of its last input
    assert scopes["transform:0"] == ""


def test_graphs_before_and_after_the_passes_are_side_by_side(plan: Plan, bench: Bench) -> None:
    before, after = plan_scenes(plan)
    assert before.title == "before, as resolved: 2 Transforms each run, 0.01 MB"
    assert after.title.startswith("after ")
    assert after.title.endswith(": 1 Transform each run, 0.00 MB")
    shown = boxes(svg_picture([before, after]))
    assert [box.findtext(f"{SVG}text[@class='name']") for box in shown].count("Mix") == 12
    assert [box.details["kernels"] for box in after.boxes if box.name == "stem"] == [["python"]]
    with Session(scoped(bench), optimize="none") as session:
        [scene] = plan_scenes(session.plan)
    assert scene.title.startswith("resolved, no passes ran: 2 Transforms")


def formed(graph: LoweredGraph, forms: Mapping[str, Mapping[str, Any]]) -> LoweredGraph:
    """Return a graph with other fields in the variants of some nodes, by name."""
    nodes = [
        replace(node, variant=replace(node.variant, **forms.get(node.name, {})))
        if isinstance(node, OpNode)
        else node
        for node in graph.nodes
    ]
    return replace(graph, nodes=nodes)


def test_forms_have_a_band_a_word_and_a_place_in_the_legend(bench: Bench) -> None:
    plain = extended(scoped(bench))
    [stem] = [node.variant for node in plain.operators if node.name == "stem"]
    stored = [Form.parse(text) for text in ("NCHW:s8(scale=0.5)", "NCHW:bf16+bf16")]
    graph = formed(
        plain,
        {
            "stem": {"forms": (*stored, *stem.forms[2:])},
            "a/one": {"inexact": True, "kernel": "F(4x4,3x3)"},
            "a/two": {"inexact": True, "kernel": "F(4x4,3x3)"},
            "b/two": {"forms": tuple(Form.parse("NCHW:f32") for _ in stem.forms)},  # no change
        },
    )
    scene = make_scene("a graph", graph)
    forms = {"stem": "s8, bf16+bf16", "a/one": "F(4x4,3x3)", "a/two": "F(4x4,3x3)"}
    assert {box.name: box.form for box in scene.boxes if box.form} == forms
    assert scene.appearance != make_scene("a graph", plain).appearance
    svg = svg_picture([scene])
    bands = zip(
        hints(svg), (box.find(f"{SVG}rect[@class='band']") for box in boxes(svg)), strict=True
    )
    assert {hint: band.get("fill") for hint, band in bands if band is not None} == {
        "Mix a/one on toy, F(4x4,3x3)": BANDS[0],
        "Mix a/two on toy, F(4x4,3x3)": BANDS[0],
        "Mix stem on toy, s8, bf16+bf16": BANDS[1],
    }
    words = [box.findtext(f"{SVG}text[@class='form']") for box in boxes(svg)]
    assert [word for word in words if word] == [*forms.values()]
    keys = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert keys.count("F(4x4,3x3)") == 3  # two boxes and the legend
    [view] = json.loads(Page(html_page("net", [scene])).scripts()[0])["views"]
    assert {box["name"]: box["form"] for box in view["boxes"] if box["form"]} == forms


def test_hostile_names_are_only_text(bench: Bench) -> None:
    scene = make_scene(HOSTILE[0], extended(scoped(bench, HOSTILE)))
    svg, page = svg_picture([scene]), Page(html_page(HOSTILE[1], [scene]))
    for name in HOSTILE[1:]:
        assert f"Mix {text_of(name)} on toy" in hints(svg)
    data, script = page.scripts()
    assert len([tag for tag, _ in page.elements if tag == "script"]) == 2
    names = [box["name"] for view in json.loads(data)["views"] for box in view["boxes"]]
    assert set(HOSTILE) < set(names)
    assert "alert" not in script
    allowed = {tag for tag, _ in Page(html_page("", [])).elements} | {
        *("figure", "figcaption", "g", "rect", "text", "title", "path", "polygon")
    }
    assert {tag for tag, _ in page.elements} <= allowed
    assert not any(key.startswith("on") for _, attributes in page.elements for key in attributes)


def loads(text: str) -> list[str]:
    """Return what a page or a picture would fetch."""
    page = Page(text)
    found = [
        f"{tag} {key}"
        for tag, attributes in page.elements
        for key in attributes
        if key in ("src", "href", "xlink:href", "srcset", "data", "action")
    ]
    for tag, content in page.texts:
        if tag in ("style", "script"):
            found += re.findall(r"url\(|@import|https?:|fetch\(|import\(|XMLHttp", content)
    return found


def test_nothing_is_loaded(plan: Plan) -> None:
    scenes = plan_scenes(plan)
    page = html_page("net", scenes)
    assert loads(page) == loads(svg_picture(scenes)) == []
    script = Page(page).scripts()[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    [policy] = [a["content"] for tag, a in Page(page).elements if "http-equiv" in a]
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    )


@pytest.mark.parametrize(
    "text",
    [
        "<script src=a.js></script>",
        "<link href=a.css>",
        "<style>@import 'a.css'</style>",
        "<style>a { background: url(a.png) }</style>",
        "<script>fetch('a')</script>",
        "<script>const a = 'https://a'</script>",
    ],
)
def test_load_is_found(text: str) -> None:
    assert loads(text)


def test_command_writes_both_files_and_names_them(squeezenet: Path, tmp_path: Path) -> None:
    html, svg = tmp_path / "out.html", tmp_path / "out.svg"
    arguments = ("plan", squeezenet, "--html", html, "--svg", svg)
    ran = vtensor(*arguments)
    assert ran.stdout == f"wrote {html}\nwrote {svg}\n"
    assert len(boxes(svg.read_text())) > 40
    assert html.read_text().startswith("<!DOCTYPE html>")
    assert sorted(tmp_path.iterdir()) == [html, svg]
    as_json = vtensor(*arguments, "--json")
    assert json.loads(as_json.stdout)["model"] == "squeezenet"
    assert f"wrote {svg}" in as_json.stderr


def test_file_that_cannot_be_written_is_an_error_and_stays(plan: Plan, tmp_path: Path) -> None:
    kept = tmp_path / "kept.html"
    kept.write_text("as it was")
    for file in (tmp_path, tmp_path / "no" / "out.html", Path("/dev/null"), Path("a\0b"), Path()):
        with pytest.raises(InputError, match="cannot be written"):
            write_pictures([plan], "net", html=file)
    (tmp_path / f".kept.html.{os.getpid()}").mkdir()
    with pytest.raises(InputError, match="Is a directory"):
        write_pictures([plan], "net", html=kept)
    assert kept.read_text() == "as it was"


def luminance(colour: str) -> float:
    """Return the relative luminance, WCAG 2.1."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(left: str, right: str) -> float:
    """Return the contrast of two colours, 1 to 21, WCAG 2.1."""
    low, high = sorted((luminance(left), luminance(right)))
    return (high + 0.05) / (low + 0.05)


def test_text_and_lines_have_contrast() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert min(contrast(tint, "#1a1a1a") for tint in TINTS) > 7  # WCAG's AAA for text
    assert min(contrast(stroke, "#ffffff") for stroke in STROKES) > 2
    assert min(contrast(band, tint) for band in BANDS for tint in TINTS) > 3  # of what is no text
    signs = [(STROKES[i % len(STROKES)], DASHES[i % len(DASHES)]) for i in range(12)]
    assert len({*signs}) == len(signs)
