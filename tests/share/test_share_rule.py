"""Rule `share` after a real run on the fake server: shows failures, retries nothing, starts nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from chain.runs import Run

from quietgate.files import sha256
from quietgate.share import verify
from quietgate.share.archive import opened
from share.test_reviewer_mode import review

pytestmark = [pytest.mark.workflow, pytest.mark.slow]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "study")


def records(run: Run) -> dict[str, str]:
    return {str(p): sha256(p) for p in sorted(run.results.glob("cells/**/*.json*"))}


def test_share_after_a_study_with_a_failed_cell(run: Run, tmp_path: Path) -> None:
    run.mode_file.write_text("crash-at-start:0.2@speculative_num_steps=2")
    assert run() == 1, run.text()[-3000:]
    assert verify.check(run.results).problems == []
    before = records(run)
    # Neither a mended server nor missing tables make `share` measure anything again.
    run.mode_file.write_text("")
    shutil.rmtree(run.results / "tables")
    shutil.rmtree(run.results / "figures")
    process = run.start(log="share.log", target="share")
    assert process.wait(300) == 0, run.text("share.log")[-3000:]
    assert records(run) == before
    assert set(run.jobs("share.log")) <= {"collect", "plot", "report_page", "share"}
    assert verify.check(run.results).problems == []
    assert not run.processes()

    (archive,) = (run.folder / "results").glob("*.zip")
    with opened(archive) as root:
        assert verify.check(root).problems == []
        assert "out_of_memory" in (root / "tables/failures.csv").read_text()
        assert str(run.folder.parents[3]) not in (root / "REVIEWERS.md").read_text()
    found = review(tmp_path, archive, "figures")
    assert found.returncode == 0, found.stdout + found.stderr

    # An edit since then is not measured by the way.
    run.edit(benchmark__repeats=3)
    process = run.start(log="edited.log", target="share")
    assert process.wait(300) == 2
    assert "changed: benchmark.repeats (and 1 more): run `all` first" in run.text("edited.log")
    assert records(run) == before
    assert run("-n", log="dry.log", target="share") == 0
    refusal = "a run would refuse: results/t: steps-0_nccl-default l1, from benchmark on: changed: benchmark"
    assert refusal in run.text("dry.log")
    run.edit(benchmark__repeats=2)

    # The next ordinary run does retry it.
    assert run(log="again") == 0, run.text("again")[-3000:]
    assert run.jobs("again")["gate"] == 1
    assert verify.check(run.results).problems == []
    run.nothing_left()
