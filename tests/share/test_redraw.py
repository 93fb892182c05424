"""What was shared, made again: identical, the same data, or different and where."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pandas as pd
import pytest

from quietgate.files import read_json, write_json
from quietgate.share import redraw, verify
from quietgate.share.archive import opened
from quietgate.steps import reviewer
from share import studies

EXAMPLES = Path(__file__).parents[2] / "results" / "examples"
SHARED = sorted(p for p in EXAMPLES.iterdir() if p.name.endswith((".zip", ".tar.xz")))


def verdicts(root: Path, scratch: Path) -> dict[str, redraw.Verdict]:
    return {v.file: v for v in redraw.attempt(root, scratch)[0]}


def test_three_examples_are_in_the_repository() -> None:
    named = [p.name.removesuffix(".tar.xz").removesuffix(".zip") for p in SHARED]
    assert named == ["cpu-tiny-eagle3", "h200-tiny-eagle3", "h200x2-nccl"]


@pytest.mark.parametrize("path", SHARED, ids=lambda path: path.name)
def test_examples_in_the_repository_redraw_to_the_same_bytes(path: Path, tmp_path: Path) -> None:
    with opened(path) as root:
        assert verify.check(root).problems == []
        found, notes = redraw.redraw(root, tmp_path / "scratch")
    if notes:
        pytest.skip("; ".join(notes))
    assert [str(v) for v in found if v.verdict != redraw.IDENTICAL] == []


def test_a_changed_record_shows_in_what_is_made_of_it(study: Path, tmp_path: Path) -> None:
    mine = studies.copy(study, tmp_path)
    studies.edit(mine / "cells/steps-2_nccl-tuned/l1/benchmark.json", passes__0__decode_tokens_per_s=99.0)
    found = verdicts(mine, tmp_path / "scratch")
    assert found["tables/cells.csv"].verdict == redraw.DIFFERS
    assert "decode_tokens_per_s" in found["tables/cells.csv"].why
    assert found["figures/speed_up.pdf"].verdict == redraw.DIFFERS
    assert found["tables/positions.csv"].verdict == redraw.IDENTICAL


def test_a_changed_figure_is_told_from_one_by_other_libraries(study: Path, tmp_path: Path) -> None:
    mine = studies.copy(study, tmp_path)
    picture = mine / "figures/speed_up.svg"
    picture.write_text(picture.read_text() + "<!-- -->")
    studies.edit(mine / "study.json", versions={"matplotlib": redraw.provenance.versions()["matplotlib"]})
    scratch = tmp_path / "scratch"
    assert verdicts(mine, scratch)["figures/speed_up.svg"].verdict == redraw.DIFFERS
    studies.edit(mine / "study.json", versions={"matplotlib": "3.0.0"})
    found, notes = redraw.attempt(mine, scratch)
    by_name = {v.file: v for v in found}
    assert by_name["figures/speed_up.svg"].verdict == redraw.SAME
    assert by_name["figures/speed_up.pdf"].verdict == redraw.IDENTICAL
    assert any("matplotlib 3.0.0 there" in note for note in notes)
    (mine / "figures/speed_up.csv").write_text("a\n1\n")
    assert verdicts(mine, scratch)["figures/speed_up.svg"].verdict == redraw.DIFFERS


def test_what_differs_is_put_down_to_other_code_where_it_may_be(
    study: Path, shared: tuple[Path, list[str]], tmp_path: Path
) -> None:
    assert redraw.other_code(study) is None, "a folder does not say what made it"
    mine = tmp_path / "mine"
    zipfile.ZipFile(shared[0]).extractall(mine)
    (mine / "tables/extra.csv").write_text("x\n")

    def notes() -> list[str]:
        told: list[str] = []
        assert not reviewer.review(mine, tmp_path / "scratch", told.append)
        assert any(line.endswith("DIFFER") for line in told)
        return [line for line in told if line.startswith("note: made by another version of this code")]

    assert notes() == []
    code = read_json(mine / "archive.json")["code"]
    studies.edit(mine / "archive.json", code=code | {"commit": "c0ffee", "sources": "0" * 16})
    (told,) = notes()
    assert "at commit c0ffee" in told


def test_missing_and_added_files(study: Path, tmp_path: Path) -> None:
    mine = studies.copy(study, tmp_path)
    (mine / "figures/speed_up.pdf").unlink()
    (mine / "tables/extra.csv").write_text("x\n")
    found = verdicts(mine, tmp_path / "scratch")
    assert found["figures/speed_up.pdf"].why == "is missing in the results"
    assert found["tables/extra.csv"].why == "is not made from these records"


def test_records_that_make_no_table_are_a_verdict(study: Path, tmp_path: Path) -> None:
    mine = studies.copy(study, tmp_path)
    studies.edit(mine / "cells/steps-2_nccl-tuned/l1/benchmark.json", digest="0" * 16)
    found, _ = redraw.attempt(mine, tmp_path / "scratch")
    assert found[0].verdict == redraw.DIFFERS
    assert "cannot be made" in found[0].why


@pytest.mark.parametrize(
    ("there", "here", "verdict", "words"),
    [
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0 + 1e-12]}, redraw.SAME, "last digits"),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.001]}, redraw.DIFFERS, "line 3, a: '2.0', redrawn '2.001'"),
        ({"a": ["x"]}, {"a": ["y"]}, redraw.DIFFERS, "line 2, a: 'x', redrawn 'y'"),
        ({"a": ["nan"]}, {"a": ["1.0"]}, redraw.DIFFERS, "line 2"),
        ({"a": [1]}, {"b": [1]}, redraw.DIFFERS, "other columns (a, b)"),
        ({"a": [1]}, {"a": [1, 2]}, redraw.DIFFERS, "1 row, 2 redrawn"),
    ],
)
def test_tables(
    there: dict[str, list[object]], here: dict[str, list[object]], verdict: str, words: str, tmp_path: Path
) -> None:
    for name, columns in (("there", there), ("here", here)):
        pd.DataFrame(columns).to_csv(tmp_path / f"{name}.csv", index=False)
    found = redraw.table_difference(tmp_path / "there.csv", tmp_path / "here.csv")
    assert found[0] == verdict
    assert words in found[1]


def test_published_observations_are_only_taken_from_the_results_of_an_archive(
    study: Path, tmp_path: Path
) -> None:
    mine = studies.copy(study, tmp_path)
    outside = tmp_path / "marks.csv"
    outside.write_text("x\n")
    named = {"config": {"reference_observations": str(outside)}}
    assert redraw.remake.__globals__["observations_of"](mine, named) == outside
    write_json(mine / "archive.json", {})
    assert redraw.remake.__globals__["observations_of"](mine, named) is None
