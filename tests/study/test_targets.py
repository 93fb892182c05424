"""How far the targets of a run take each launch; every name here is one of `workflow/rules`."""

import re
from pathlib import Path

import pytest

from quietgate.study import Study
from quietgate.study.stages import EXTRACT, launch_folder
from quietgate.study.targets import PRODUCTS, WHOLE_STUDY, reach

ROOT = Path(__file__).parents[2]
RESULTS = Path("results/small")


@pytest.fixture
def study(base):
    return Study.from_config(base)


def reached(study, *targets, **cut):
    """Launch -> the name of the last stage that a run of these targets makes of it."""
    return {launch: stage.name for launch, stage in reach(study, RESULTS, targets, **cut).items()}


def of(launch, name):
    return str(launch_folder(RESULTS, launch) / name)


@pytest.mark.parametrize(
    "target", [*sorted(WHOLE_STUDY), *(f"{RESULTS}/{name}" for name in PRODUCTS), f"./{RESULTS}/report.html"]
)
def test_what_walks_the_whole_study_takes_every_launch_to_its_end(study, target):
    assert reached(study, target) == dict.fromkeys(study.launches, EXTRACT.name)
    assert reached(study, "share", of(study.launches[0], "gate.json"), target) == reached(study, "all")


NOTHING = ("share", "figures", "study", "tiny_models", "gate", "nonsense", "")
NO_LAUNCH = (
    f"{RESULTS}/study.json",
    f"{RESULTS}/tables",
    "results/other/report.html",
    "resources/x/models.json",
)


@pytest.mark.parametrize("target", [*NOTHING, *NO_LAUNCH])
def test_what_makes_no_launch_takes_none_anywhere(study, target):
    assert reached(study, target) == {}


MADE_BY = {
    "launch.json": "launch",
    "gate.json": "gate",
    "benchmark.json": "benchmark",
    "requests.jsonl": "benchmark",
    "stages.json": "benchmark",
    "capture.json": "capture",
    "exit.json": "release",
    "server.log": "release",
    "profile.json": "extract",
}


@pytest.mark.parametrize(("name", "stage"), MADE_BY.items())
def test_a_file_of_one_launch_takes_that_launch_so_far(study, name, stage):
    first, second = study.launches[:2]
    assert reached(study, of(first, name)) == {first: stage}
    assert reached(study, "./" + of(first, name)) == {first: stage}
    assert reached(study, f"results/../{RESULTS}//cells/{first.cell.id}/{first.id}/{name}") == {first: stage}
    both = reached(study, "figures", of(first, name), of(first, "launch.json"), of(second, "gate.json"))
    assert both == {first: stage, second: "gate"}


def test_files_that_no_rule_makes_by_this_name(study, base):
    first = study.launches[0]
    # Snakemake has no rule for a file by its absolute path, nor for the folder of traces.
    for target in (str(Path(of(first, "profile.json")).absolute()), of(first, "trace"), of(first, "l1")):
        assert reached(study, target) == {}
    assert reached(study, of(first, "all_reduce.json")) == {}, "the check is off"
    base["all_reduce"] = {"enabled": True, "bytes": [32]}
    assert list(reached(Study.from_config(base), of(first, "all_reduce.json")).values()) == ["all_reduce"]


@pytest.mark.parametrize(
    ("cut", "last"),
    [
        ({"until": ["gate"]}, "gate"),
        ({"until": ["gate", "benchmark"]}, "benchmark"),
        ({"until": ["gate", "collect"]}, "extract"),
        ({"omit_from": ["benchmark"]}, "gate"),
        ({"omit_from": ["benchmark", "gate", "plot"]}, "launch"),
        ({"omit_from": ["launch"]}, None),
        ({"omit_from": ["collect"]}, "extract"),
    ],
)
def test_a_run_that_is_cut_short_reaches_no_further(study, cut, last):
    assert reached(study, "all", **cut) == (dict.fromkeys(study.launches, last) if last else {})
    first = study.launches[0]
    assert reached(study, of(first, "launch.json"), **cut) == ({first: "launch"} if last else {})


def test_the_rules_say_the_same():
    """A rule that walks all launches, or a file of one, is known by the name that it has there."""
    text = (ROOT / "workflow/rules/offline.smk").read_text()
    rules = dict(re.findall(r"^ *rule (\w+):\n(.*?)(?=^ *rule |\Z)", text, re.M | re.S))
    walks = {name for name, body in rules.items() if "all_records()" in body}
    for _ in rules:
        made = {f for name in walks for f in re.findall(r'=f"\{RESULTS\}/([^"{]+)"', rules[name])}
        walks |= {name for name, body in rules.items() if any(f'{{RESULTS}}/{f}"' in body for f in made)}
    assert walks - {"figures"} == WHOLE_STUDY
    assert made == set(PRODUCTS)
