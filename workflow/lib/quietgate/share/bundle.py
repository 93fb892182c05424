"""`<study>-<date>.zip` (or `.tar.xz`): what a reviewer needs, with nothing in it that is nobody's business.

The same results give the same bytes. Everything is copied, scrubbed and made again in a scratch folder;
the results themselves are only read.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from quietgate import __version__, provenance, records
from quietgate.analyse.launch_records import launched_cells
from quietgate.errors import BadInput
from quietgate.files import at_home, read_json, sha256, write_atomic, write_json
from quietgate.share import checksums, crate, reviewers, verify
from quietgate.share.archive import files, said_of, shown
from quietgate.share.belongs import study_files
from quietgate.share.contents import EXTENSIONS, PLAIN_NAMES
from quietgate.share.pack import pack
from quietgate.share.remake import ARCHIVE, OBSERVATIONS, PROMPTS, observations_of, remake
from quietgate.share.scrub import Scrubber, find
from quietgate.share.secrets import SHAPES
from quietgate.share.study_record import read_study

_BASEDIR = Path(__file__).parents[4]
_MAX_PATCH_BYTES = 1_000_000


def bundle(
    results: Path, folder: Path, say: Callable[[str], None], small: bool = False, tight: bool = False
) -> Path:
    """Write the archive of the study in `results` into `folder`; returns its path.

    Args:
        say: gets one line per thing that whoever shares should see before they send it.
        small: leave out the traces and the logs, which no table or figure is made of.
        tight: a .tar.xz: about half the size of a zip, as it makes use of what the files have in common.
    """
    with tempfile.TemporaryDirectory(prefix="quietgate-share-") as scratch:
        stage_root = Path(scratch) / "results"
        with said_of(results, stage_root):
            archive = stage(results, stage_root, say, small, tight)
        path = folder / reviewers.file_name(archive)
        pack(stage_root, path, archive["date"], tight)
    return path


def stage(
    results: Path, target: Path, say: Callable[[str], None], small: bool = False, tight: bool = False
) -> records.Record:
    """Make the archive's contents as a new folder `target`, as `bundle`; returns the record `archive`."""
    if target.exists():
        raise BadInput(f"{shown(target)}: is there already; name a new folder")
    study = read_study(results)
    names, left_out = _chosen(results, study, small)
    identifiers = _identifiers(study)
    scrubber = Scrubber(find(results, [*names, *left_out], identifiers), identifiers)
    left_out = [scrubber.name(name) for name in left_out]
    for name in names:
        if name.startswith(("tables/", "figures/")) or name == "report.html":
            continue  # made again from what is scrubbed
        write_atomic(target / scrubber.name(name), scrubber.file(results / name, name))
    _reseal(results, target, study)
    notes = _inputs(results, target, study)
    scrubbed = read_study(target)
    config = yaml.safe_dump(scrubbed["config"], sort_keys=False, allow_unicode=True, width=100)
    write_atomic(target / "config.yaml", config)
    _code(target, scrubber)
    notes += remake(target, target)
    found = verify.check(target, left_out=left_out)
    if not found.readable:
        raise BadInput("\n".join(f"{shown(target)}/{line}" for line in found.problems))
    archive: records.Record = {
        "schema": "quietgate/archive/1",
        "study": study["study"],
        "date": _date(target, study),
        "code": {
            "version": __version__,
            **provenance.git(str(_BASEDIR)),
            "sources": provenance.sources(),
        },
        "versions": provenance.versions(),
        "replacements": _rows(scrubber),
        "left_out": left_out,
        "small": small,
        "tight": tight,
        "problems": found.problems,
        "notes": notes,
    }
    records.write(target / ARCHIVE, archive)
    write_atomic(target / "replacements.csv", scrubber.table())
    write_atomic(target / "REVIEWERS.md", reviewers.page(target, scrubbed, archive))
    write_atomic(target / crate.NAME, crate.metadata(target, scrubbed, archive, list(files(target))))
    checksums.write(target, files(target))
    for line in [*scrubber.lines(), *(f"left out: {n}" for n in left_out), *notes]:
        say(line)
    for line in found.problems:
        say(f"problem: {line}")
    return archive


def _chosen(results: Path, study: Mapping[str, Any], small: bool) -> tuple[list[str], list[str]]:
    """Files that are shared, and files of the study that are not: unwanted, or of a type no archive holds."""
    names: list[str] = []
    left_out: list[str] = []
    for name in study_files(results, study):
        last = name.rsplit("/", 1)[-1]
        fits = Path(last).suffix in EXTENSIONS or last in PLAIN_NAMES
        unwanted = small and ("/trace/" in name or last.endswith(".log"))
        (names if fits and not unwanted and not last.startswith(".") else left_out).append(name)
    return names, left_out


def _identifiers(study: Mapping[str, Any]) -> set[str]:
    """Names of the study: they make folders, rows and labels, and are never replaced."""
    out = {study["study"], study["reference"], *study["axes"], *study["config"]["nccl_profiles"]}
    for cell in launched_cells(study):
        out |= {cell["id"], cell["nccl"], *(str(v) for v in cell["axes"].values())}
    return out | {x["launch"] for x in study["launches"]}


def _reseal(results: Path, target: Path, study: Mapping[str, Any]) -> None:
    """Digests of files that scrubbing changed, where they held before; a broken seal stays broken."""
    for asked in study["launches"]:
        place = Path("cells") / asked["cell"] / asked["launch"]
        before, after = results / place, target / place
        benchmark = read_json(after / "benchmark.json")
        if isinstance(benchmark, dict) and (before / "requests.jsonl").is_file():
            old, new = sha256(before / "requests.jsonl"), sha256(after / "requests.jsonl")
            if old != new and benchmark.get("requests_sha256") == old:
                write_json(after / "benchmark.json", benchmark | {"requests_sha256": new})
        capture = read_json(after / "capture.json")
        changed = False
        for one in (capture or {}).get("trace_files") or []:
            old_file, new_file = before / "trace" / one["name"], after / "trace" / one["name"]
            if old_file.is_file() and new_file.is_file() and sha256(old_file) == one["sha256"]:
                fresh = {"sha256": sha256(new_file), "bytes": new_file.stat().st_size}
                changed = changed or fresh["sha256"] != one["sha256"]
                one.update(fresh)
        if changed:
            write_json(after / "capture.json", capture)


def _inputs(results: Path, target: Path, study: Mapping[str, Any]) -> list[str]:
    """Copies of files that the config names: published observations, and the prompts."""
    notes = []
    marks = observations_of(results, study)
    if marks:
        write_atomic(target / OBSERVATIONS, marks.read_bytes())
    named = study["config"]["benchmark"].get("prompts")
    prompts = at_home(named) if named else None
    if prompts and prompts.is_file():
        data = prompts.read_bytes()
        if SHAPES.search(data.decode(errors="replace")):
            notes.append("the prompts hold what looks like a secret: they were left out")
        else:
            write_atomic(target / PROMPTS, data)
    elif prompts:
        notes.append("the prompts are not here any more: they were left out")
    return notes


def _code(target: Path, scrubber: Scrubber) -> None:
    """Schemas, the Snakefile, and what differs from the commit."""
    for schema in sorted(records.SCHEMAS.glob("*.schema.json")):
        write_atomic(target / "schemas" / schema.name, schema.read_bytes())
    write_atomic(target / "code/Snakefile", (_BASEDIR / "Snakefile").read_bytes())
    if provenance.git(str(_BASEDIR))["modified"]:
        command = ["git", "-C", str(_BASEDIR), "diff", "HEAD", "--no-color", "--no-ext-diff"]
        run = subprocess.run(command, capture_output=True, check=False, timeout=60)
        if run.returncode == 0 and len(run.stdout) < _MAX_PATCH_BYTES:
            text = scrubber.text(run.stdout.decode("utf-8", "replace"))
            write_atomic(target / "code/changes.patch", text)


def _date(root: Path, study: Mapping[str, Any]) -> str:
    """The day of the newest record: the same results have the same date whenever they are shared."""
    times = [study["written_at"]]
    for asked in study["launches"]:
        for path in (root / "cells" / asked["cell"] / asked["launch"]).glob("*.json"):
            times.append(str((read_json(path) or {}).get("started_at") or ""))
    return str(max(times))[:10]


def _rows(scrubber: Scrubber) -> list[dict[str, Any]]:
    return [
        {"kind": kind, "replacement": new, "places": scrubber.places[kind, new], "files": len(where)}
        for (kind, new), where in sorted(scrubber.files.items())
    ]
