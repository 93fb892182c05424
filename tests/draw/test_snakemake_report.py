"""Snakemake's own report of a finished study: made without running anything, read without a network."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest
from chain.runs import Run, stamps

from quietgate.draw.figures import FIGURES
from quietgate.draw.shown import CATEGORIES

pytestmark = pytest.mark.workflow


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = Run(tmp_path_factory.mktemp("reported"), capture__enabled=False)
    assert run() == 0, run.text()[-3000:]
    return run


@pytest.fixture(scope="module")
def page(finished):
    before = stamps(finished)
    assert finished("--report", "x.html", log="report") == 0, finished.text("report")[-3000:]
    assert stamps(finished) == before, "a report changes nothing"
    finished.nothing_left()
    assert finished("--dry-run", log="after") == 0
    assert finished.finished("after")
    return finished.folder / "x.html"


def test_every_figure_has_its_category():
    assert list(CATEGORIES) == list(FIGURES)


def test_every_figure_is_there_with_category_label_and_caption(finished, page):
    text = page.read_text()
    record = json.loads((finished.results / "figures/figures.json").read_text())
    assert len(record["figures"]) >= 6
    results, categories = (
        json.loads(re.search(rf"^\s*var {name} = (\{{.*\}});?$", text, re.M)[1])
        for name in ("results", "categories")
    )
    assert len(results) == len(record["figures"])
    for figure in record["figures"]:
        path = f"results/t/figures/{figure['name']}.svg"
        shown = results[path]
        assert shown["labels"]["figure"] == figure["title"]
        assert path in categories[CATEGORIES[figure["name"]]]["Other"]
        # Nothing in the caption was taken for markup.
        words = html.unescape(re.sub(r"<[^>]+>", "", shown["caption"]))
        assert " ".join(figure["caption"].split()) in " ".join(words.split())
        assert "system-message" not in shown["caption"]
    assert "what speculative steps and NCCL settings do" in text


def test_nothing_is_fetched(page):
    text = page.read_text()
    assert not re.search(r"<script[^>]*\ssrc=", text)
    assert not re.search(r"<link[^>]*\shref=\"https?:", text)


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
def test_a_browser_without_a_network_shows_the_categories(page, tmp_path):
    shown = subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}",
            "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=5000", "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    body = re.sub(r"<script.*?</script>", "", shown, flags=re.S)
    for category in ("Speed", "Speculation", "Load"):
        assert f">{category}<" in body, category
