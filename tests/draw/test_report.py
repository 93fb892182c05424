"""The report: one file, offline, with the answer first and nothing hidden."""

from __future__ import annotations

import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from draw import synthetic
from draw.conftest import made, material
from draw.synthetic import config
from quietgate.analyse import tables
from quietgate.draw import report, report_rows, report_words
from quietgate.draw.figures import draw_all
from quietgate.files import write_json

VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Checks nesting and keeps tags, attributes and text."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        self.text.append(data)

    @classmethod
    def of(cls, path):
        page = cls()
        page.feed(path.read_text())
        assert page.open == []
        page.words = re.sub(r"\s+", " ", " ".join(page.text))
        return page


def written(root, study, outcome, out, found=None, marks=None):
    if marks or not (root / "figures" / "figures.json").exists():
        record = draw_all(root / "tables", root / "figures", study, outcome, marks)
        write_json(root / "figures" / "figures.json", record)
    write_json(root / "tables" / "tables.json", found or {})
    report.write(root, study, outcome, out)
    return Page.of(out)


@pytest.fixture(scope="module")
def page(results, tmp_path_factory):
    root, study, outcome = results
    found = {
        "drifts": [{"argument": "mem_fraction_static", "text": "mem_fraction_static differs: 0.88, 0.8"}],
        "agreement": [{"same": True, "text": "one"}, {"same": False, "text": "tokens differ first at 17"}],
        "warnings": ["a warning & its <cure>"],
        "refused": [],
        "tables": [{"name": "cells", "sha256": "a" * 64, "rows": 5}],
    }
    return written(root, study, outcome, tmp_path_factory.mktemp("page") / "report.html", found)


def test_the_answer_comes_first(page, results):
    _, _, outcome = results
    words = page.words
    first = [words.index(re.sub(r"\s+", " ", s)) for s in outcome["answer"]]
    assert first == sorted(first)
    assert first[-1] < words.index("speculative steps;"), "before the first caption"


def test_nothing_is_fetched(page):
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe")
        for name in ("src", "href", "srcset"):
            value = attributes.get(name, "#")
            assert value.startswith(("#", "data:image/svg+xml;base64,")), value
    style = next(t for t in page.text if "color-scheme" in t)
    assert "url(" not in style
    assert "@import" not in style


def test_every_figure_is_there_with_alternative_text(page):
    images = [a for t, a in page.tags if t == "img"]
    assert len(images) == 13
    assert all(a["alt"] for a in images)


def test_failures_drifts_and_warnings_are_told(page):
    for told in (
        "CUDA ran out of memory while graphs were captured",
        "the last line of the log",
        "mem_fraction_static differs",
        "tokens differ first at 17",
        "Texts that are the same: 1; that differ: 1",
        "a warning & its <cure>",
        "No passed launch",
        "Invented 9000",
        "8 x Invented GPU",
        "sglang.launch_server",
    ):
        assert told in page.words, told


def test_headings_descend_one_level_at_a_time(page):
    levels = [int(t[1]) for t, _ in page.tags if re.fullmatch(r"h[1-6]", t)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))


def test_no_conclusion_on_profiles_that_did_nothing(on_cpu, tmp_path):
    root, study, outcome = on_cpu
    words = written(root, study, outcome, tmp_path / "report.html").words
    assert words.count("are the same configuration, measured again") == 1, "said once, in the answer"
    assert "the fastest measured cell is" in words
    assert ", ll-ring (" in outcome["answer"][0], "the reference's profile stands for the configuration"
    assert "not exercised (no NCCL on this device)" in words
    assert "drift: one launch per cell" in words


KIMI = Path(__file__).parents[2] / "config/reference/kimi-k2.5-eagle3.csv"


def test_published_numbers_are_shown_beside_what_follows_from_them(tmp_path):
    study, outcome = made(tmp_path, config([0, 2, 5], launches=2))
    words = written(tmp_path, study, outcome, tmp_path / "report.html", marks=KIMI).words
    table = words[words.index("Published from a study made by hand") :]
    for told in ("41.2 % +41 % yes", "24.4 % about 27 % no", "5.9 % +5.9 % yes", "-2.4 % nothing"):
        assert told in table, told
    assert "no part of any result here" in table
    caption = (tmp_path / "figures/request_tokens_per_s.txt").read_text()
    for value in ("62.9 (0 steps, untuned", "88.8 (0 steps, tuned", "94 (2 steps, tuned"):
        assert value in caption


def test_a_study_that_declares_no_published_numbers_shows_none(page):
    assert "Published from a study" not in page.words


def test_what_other_prompts_would_have_given_is_told_for_each_launch(page, results):
    root, _, _ = results
    assert "Inside each launch" in page.words
    assert "says nothing about the next launch" in page.words
    frame = pd.read_csv(root / "tables" / "within.csv")
    one = frame[frame["concurrency"] == 1].iloc[0]
    assert f"{report_words.number(one['low'])} to {report_words.number(one['high'])}" in page.words


def test_machines_are_those_of_the_launches(page):
    assert "580.1" in page.words
    assert "laptop-1" in page.words, "where study.json was written"
    assert "Another 1" not in page.words


def test_without_statistics_numbers_but_no_claims(results, tmp_path):
    root, study, _ = results
    words = written(root, study, None, tmp_path / "report.html").words
    assert "The highest median was measured for" in words
    assert "nothing is claimed" in words
    assert "No comparison could be made" in words


@pytest.mark.parametrize(
    ("probability", "text"),
    [(0.0, "under 1 % yes"), (0.005, "under 1 % yes"), (0.01, "1 % yes"), (0.81, "81 % yes")],
)
def test_what_could_be_best_is_never_best_in_zero_percent(results, tmp_path, probability, text):
    root, study, outcome = results
    rows = [{**r, "probability_best": probability, "could_be_best": True} for r in outcome["optimum"]]
    words = written(root, study, {**outcome, "optimum": rows}, tmp_path / "report.html").words
    assert text in words[words.index("could be best ") :]


def test_text_from_records_cannot_become_markup(results, tmp_path):
    root, study, outcome = results
    title = "<script>alert(1)</script>"
    odd = {**study, "config": {**study["config"], "title": title}}
    page = written(root, odd, outcome, tmp_path / "report.html")
    assert not any(t == "script" for t, _ in page.tags)
    assert title in page.words


def test_the_same_results_give_the_same_page(results, tmp_path):
    root, study, outcome = results
    for name in ("a.html", "b.html"):
        written(root, study, outcome, tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""), (float("nan"), ""), (0, "0"), (3, "3"), (0.0123456, "0.01235"),
        (12.3456, "12.35"), (123456.7, "123457"), (-1.5, "-1.500"),
    ],
)  # fmt: skip
def test_numbers(value, text):
    assert report_words.number(value) == text


def test_a_profile_has_the_reason_of_the_verdict_that_counts(tmp_path):
    """An older record says that a transport was switched off, though it was used: that is judged again."""
    study = synthetic.write(tmp_path, config([2], launches=3, profiles=("tuned",)))
    older = {
        "profile_verdict": "confirmed",
        "why": "NCCL_BUFFSIZE: by 1 of 2 ranks, the others never read it",
        "variables": [{"name": "NCCL_P2P_DISABLE", "asked": "1", "verdict": "confirmed", "why": None}],
        "transports": {"P2P/IPC": 32},
    }
    # l1 is confirmed with a remark; l2 was confirmed before it was known better.
    change_nccl(tmp_path, "l1", older["why"], {"profile_verdict": "confirmed", "why": older["why"]})
    change_nccl(tmp_path, "l2", older["why"], older)
    tables.write(tables.collect(tables.read_all(tmp_path, study), study), tmp_path / "tables")
    (profile,) = report_rows.profiles(material(tmp_path, study))
    assert profile["verdict"] == "not_exercised"
    assert profile["why"] == "NCCL_P2P_DISABLE: NCCL read 1 and connected by P2P/IPC 32 times"


def test_a_confirmed_profile_has_no_reason_of_a_launch_that_failed(tmp_path):
    study = synthetic.write(tmp_path, config([2], launches=2, profiles=("tuned",)))
    [benchmark] = tmp_path.glob("cells/*/l2/benchmark.json")
    failed = {"status": "failed", "failure": {"class": "x", "reason": "x", "stage": "gate", "evidence": []}}
    benchmark.write_text(json.dumps(json.loads(benchmark.read_text()) | failed))
    why = "NCCL_PROTO: asked for LL, NCCL says Simple"
    change_nccl(tmp_path, "l2", why, {"profile_verdict": "contradicted", "why": why})
    tables.write(tables.collect(tables.read_all(tmp_path, study), study), tmp_path / "tables")
    (profile,) = report_rows.profiles(material(tmp_path, study))
    assert (profile["verdict"], profile["why"]) == ("confirmed", "")


def change_nccl(root, launch, why, evidence):
    """Another finding of NCCL in the gate of each life of a launch."""
    for path in root.glob(f"cells/*/{launch}/instances/*/gate.json"):
        gate = json.loads(path.read_text())
        stage = next(s for s in gate["stages"] if s["name"] == "nccl")
        stage["why"] = why
        stage["evidence"] |= evidence
        write_json(path, gate)


def test_the_command_of_a_server_is_shell_text():
    process = {"env": {"NCCL_ALGO": "ring,tree;allreduce:tree"}, "argv": ["python3", "-x", '{"a": 1}']}
    launched = [
        {"cell": "other", "server": {"processes": []}},
        {"cell": "c", "server": {"processes": [process]}},
    ]
    (text,) = report_rows.server({"reference": "c"}, launched)
    assert text == """NCCL_ALGO='ring,tree;allreduce:tree' python3 -x '{"a": 1}'"""
