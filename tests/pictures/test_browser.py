"""The page in a headless browser: a link folds, finds, selects and describes nodes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.libraries.bench import Bench
from tests.pictures.support import HOSTILE, Page, extended, scoped
from vtensor.pictures.page import html_page
from vtensor.pictures.scene import make_scene

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), "")
pytestmark = pytest.mark.skipif(not BROWSER, reason=f"none of {', '.join(NAMES)} is installed")


def opened(page: str, hash_: str, folder: Path) -> Page:
    """Return the page after its script has run."""
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
    command = [BROWSER, *options, "--dump-dom", f"{file.as_uri()}#{hash_}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return Page(ran.stdout)


def shown(page: Page, kind: str) -> list[dict[str, str | None]]:
    """Return the visible elements of a class."""
    return [
        attributes
        for _, attributes in page.elements
        if kind in (attributes.get("class") or "").split() and "hidden" not in attributes
    ]


def two_pictures(bench: Bench) -> str:
    """Return the page of a network with two layouts of its output; one has a Transform less."""
    graph = scoped(bench)
    scenes = [make_scene("one", extended(graph)), make_scene("two", extended(graph, "NHWC"))]
    return html_page("net", scenes)


def test_nothing_is_folded_when_all_fits(bench: Bench, tmp_path: Path) -> None:
    page = opened(two_pictures(bench), "", tmp_path)
    assert len(shown(page, "operator")) == 12
    assert len(shown(page, "transform")) == 3 + 1  # one stands in the legend
    assert shown(page, "scope") == shown(page, "selected") == shown(page, "hit") == []


def test_folded_scopes_replace_their_boxes(bench: Bench, tmp_path: Path) -> None:
    page = opened(two_pictures(bench), "depth=1", tmp_path)
    assert len(shown(page, "scope")) == 4
    assert [text for tag, text in page.texts if tag == "text" and text in "ab"] == [*"abab"]
    assert len(shown(page, "operator")) == 2


def test_node_is_selected_in_both_pictures_and_found_by_name(bench: Bench, tmp_path: Path) -> None:
    page = opened(two_pictures(bench), "depth=1&node=a/two&q=b/t", tmp_path)
    selected = [box["class"] for box in shown(page, "selected")]
    assert selected.count("box operator selected") == 2  # its scope was opened for it
    assert len(shown(page, "scope")) == 2
    assert len(shown(page, "hit")) == 2  # the scope that what was found is in
    texts = [text for _, text in page.texts]
    assert "Mix a/two on toy" in texts
    assert any(text.startswith("asked for NCHW at ") for text in texts)


def test_hostile_names_are_text(bench: Bench, tmp_path: Path) -> None:
    scene = make_scene(HOSTILE[0], extended(scoped(bench, HOSTILE)))
    page = opened(html_page(HOSTILE[1], [scene]), f"depth=1&node={quote(HOSTILE[1])}", tmp_path)
    assert len([tag for tag, _ in page.elements if tag == "script"]) == 2
    assert not any(tag == "img" for tag, _ in page.elements)
    assert shown(page, "selected")
    assert f"Mix {HOSTILE[1]} on toy" in [text for _, text in page.texts]
