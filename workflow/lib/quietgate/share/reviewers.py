"""REVIEWERS.md: one page that tells what is claimed, how to check it, and what it would cost to repeat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from quietgate.analyse import claims
from quietgate.files import read_json
from quietgate.share import cost
from quietgate.wording import counted

# What shows a claim: contrasts against the reference, and what follows from the grid.
_FIGURE = {"reference": "speed_up", "interaction": "interaction"}
_MOVED = ("moved", "unmoved")


def page(root: Path, study: Mapping[str, Any], archive: Mapping[str, Any]) -> str:
    """The page as Markdown.

    Args:
        root: the results, with tables and figures made.
        archive: the record `archive`.
    """
    return "\n".join([*_lines(root, study, archive), ""])


def file_name(archive: Mapping[str, Any]) -> str:
    """The file name of an archive, from its record."""
    small, form = "-small" if archive.get("small") else "", "tar.xz" if archive.get("tight") else "zip"
    return f"{archive['study']}-{archive['date']}{small}.{form}"


def _lines(root: Path, study: Mapping[str, Any], archive: Mapping[str, Any]) -> Iterator[str]:
    config, name = study["config"], file_name(archive)
    title = config.get("title") or study["study"]
    yield f"# For reviewers: {_plain(title)}"
    yield ""
    left_out = len(study.get("left_out", ()))
    asked = f" of {len(study['launches']) + left_out} asked for" if left_out else ""
    levels = sorted(config["benchmark"]["concurrency"])
    streams = claims.listed([*map(str, levels[:-1]), counted(levels[-1], "stream")])
    yield (
        f"{counted(len(study['cells']), 'cell')},"
        f" {counted(len(study['launches']), 'launch')} of a server{asked},"
        f" {counted(config['benchmark']['repeats'], 'timed pass')} per launch at"
        f" {streams}."
        " Made with Quietgate; every number follows from the raw requests in this archive."
    )
    yield ""
    yield "## Claims"
    yield ""
    yield from _claims(root, study)
    yield ""
    yield "## Redraw (minutes, no GPU, no SGLang, no torch)"
    yield ""
    yield "In a checkout of Quietgate " + _code(archive["code"]) + ", with Python 3.11 or 3.12:"
    yield ""
    yield f"    make figures RESULTS={name}"
    yield ""
    yield (
        "This verifies the archive (schemas, checksums, numbers recomputed from the raw requests), makes"
        " every table and figure again in a folder of its own, and says for each whether it is identical."
        " With other library versions, tables stay the same and figures are compared by the data beside"
        " them. `python -m quietgate verify` does the first part only; `sha256sum -c SHA256SUMS` needs none"
        " of our code."
    )
    yield ""
    yield "## Rerun"
    yield ""
    yield from _rerun(root, study, name)
    yield ""
    yield "## What was replaced"
    yield ""
    yield from _replaced(archive)
    yield ""
    yield "## What is where"
    yield ""
    yield "- `study.json`, `config.yaml`: the resolved study, its machine and order; the config to run again"
    rest = "; traces and logs were left out" if archive.get("small") else ", traces and logs"
    yield f"- `cells/<cell>/<launch>/`: records and raw requests of one server life each{rest}"
    yield "- `tables/`, `figures/` (each with its data as CSV and its caption), `report.html`"
    yield "- `schemas/`, `code/`: the form of every record, and the version of the code"
    yield "- `archive.json`, `replacements.csv`, `SHA256SUMS`, `ro-crate-metadata.json`: about this archive"
    if archive["problems"]:
        yield ""
        yield "## Known problems"
        yield ""
        yield from (f"- {_plain(p)}" for p in archive["problems"])


def _claims(root: Path, study: Mapping[str, Any]) -> Iterator[str]:
    found = read_json(root / "tables/statistics.json") or {}
    rows = [*_rows(root, study, found)]
    if not rows:
        yield "No claim is made. Why not:"
        yield ""
        yield from (f"- {_plain(r['text'])}" for r in found.get("refusals", []))
        return
    unit = "GPU-hours" if cost.gpus(root, study) else "server-hours"
    yield f"| claim | figure | command | {unit} | tolerance |"
    yield "|---|---|---|---|---|"
    yield from rows


def _rows(root: Path, study: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    spent, factor = cost.hours(root, study), cost.gpus(root, study) or 1
    drawn = {f["name"] for f in (read_json(root / "figures/figures.json") or {}).get("figures", [])}
    for row in found.get("contrasts", []):
        if not row["claim"]:
            continue
        figure = _FIGURE.get(row["kind"], "speed_up")
        cells = {row["cell"], row["against"]} & spent.keys()
        tolerance = f"ratio between {_number(row['ratio_low'])} and {_number(row['ratio_high'])}"
        yield _row(row["text"], figure, drawn, factor * sum(spent[c] for c in cells), tolerance)
    for row in found.get("moves", []):
        if row["verdict"] in _MOVED:
            profiles = {row["nccl"], row["against"]}
            cells = {c["id"] for c in study["cells"] if c["nccl"] in profiles}
            hours = factor * sum(spent[c] for c in cells)
            yield _row(row["text"], "interaction", drawn, hours, "the same set of best steps")


def _row(text: str, figure: str, drawn: set[str], hours: float, tolerance: str) -> str:
    shown = f"`figures/{figure}.pdf`" if figure in drawn else "`tables/contrasts.csv`"
    command = "`snakemake --cores 1 all --configfile config.yaml`"
    return f"| {_plain(text)} | {shown} | {command} | {hours:.2g} | {tolerance} |"


def _number(value: float | None) -> str:
    return "no limit" if value is None else f"{value:.3f}"


def _code(code: Mapping[str, Any]) -> str:
    at = f"{code['version']}, commit {code['commit'][:12]}" if code["commit"] else str(code["version"])
    return at + (" with the changes in `code/changes.patch`" if code["modified"] else "")


def _rerun(root: Path, study: Mapping[str, Any], name: str) -> Iterator[str]:
    hours, gpus = sum(cost.hours(root, study).values()), cost.gpus(root, study)
    names, processor = cost.machine(root, study)
    on = f"{gpus} x {' or '.join(names) or 'GPU'}" if gpus else f"a CPU ({processor})"
    spent = f"{hours:.2g} server-hours" + (f", {hours * gpus:.2g} GPU-hours" if gpus else "")
    yield f"Took {spent} on {_plain(on)}. Needs the models that `config.yaml` names, at paths of your own."
    yield ""
    yield "    snakemake --cores 1 all --configfile config.yaml"
    yield f"    python -m quietgate compare {name} results/{study['study']}"
    yield ""
    yield (
        "On other machines absolute numbers differ; a claim is reproduced where its ratio falls within the"
        " tolerance above. `compare` gives ratios with intervals per cell, and what differed in environment"
        " and effective arguments."
    )


def _replaced(archive: Mapping[str, Any]) -> Iterator[str]:
    rows: Sequence[Mapping[str, Any]] = archive["replacements"]
    if not rows:
        yield "Nothing: no secret, user name, host name or home folder was found."
        return
    yield (
        "Secrets, user and host names, addresses and home folders were replaced before checksums were made;"
        " numbers were not touched."
    )
    yield ""
    yield "| kind | replaced by | places | files |"
    yield "|---|---|---|---|"
    yield from (f"| {r['kind']} | `{r['replacement']}` | {r['places']} | {r['files']} |" for r in rows)


def _plain(text: object) -> str:
    """Text from a study inside Markdown: one line, no table cell, no markup."""
    line = " ".join(str(text).split())
    return line.replace("|", "/").replace("<", "&lt;").replace("`", "'")
