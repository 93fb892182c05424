"""Files of an archive that say again, or of the code, what records say: do they say the same?

No table is made of them, so nothing else would notice. What only the code that made the archive could write
again (its page, its Snakefile, its schemas) is a problem where this is that code, else a note.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from quietgate import provenance, records
from quietgate.analyse.launch_records import LaunchRecords
from quietgate.errors import BadInput
from quietgate.files import sha256
from quietgate.share import crate, reviewers, strict
from quietgate.share.archive import below, files, shown
from quietgate.share.remake import ARCHIVE, PROMPTS
from quietgate.study.config import Loader
from quietgate.study.resume import differing_keys
from quietgate.study.study import BASEDIR

CHECK, CONFIG, PAGE = "check.json", "config.yaml", "REVIEWERS.md"
REPLACEMENTS, PATCH = "replacements.csv", "code/changes.patch"

# What a study of a thousand cells stays far below.
_MAX_TEXT_BYTES = 2**21


class _Plain(Loader):
    """YAML as `share` writes it: without aliases, by which a small file can stand for a huge one."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """A node, unless it is an alias."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias, which share does not write")
        return super().compose_node(parent, index)


def problems(
    root: Path, study: records.Record, launches: Sequence[LaunchRecords], notes: list[str]
) -> Iterator[str]:
    """Where such a file and the records disagree; what cannot be said of it goes to `notes`."""
    yield from _prompts(root, launches)
    yield from _check(root, launches)
    if not (root / ARCHIVE).is_file():
        return
    try:
        archive = records.read(root / ARCHIVE, "archive")
    except BadInput as e:
        yield below(root, e)
        return
    if archive["study"] != study["study"]:
        yield f"{ARCHIVE}: of another study ({archive['study']})"
    yield from _config(root, study["config"])
    yield from _replacements(root, archive)
    yield from _crate(root)
    if (root / PATCH).exists() and not archive["code"]["modified"]:
        yield f"{PATCH}: {ARCHIVE} says that the code was as committed"
    other = [*_page(root, study, archive), *_code(root, archive)]
    yield from (f"{name}: not what the code that made the archive writes" for name, ours in other if ours)
    unknown = [name for name, ours in other if not ours]
    if unknown:
        notes.append(f"of another version of the code, and so only checksummed: {', '.join(unknown)}")


def _prompts(root: Path, launches: Sequence[LaunchRecords]) -> Iterator[str]:
    """The copy of the prompts is the file that was measured with."""
    if not (root / PROMPTS).is_file():
        return
    mine = sha256(root / PROMPTS)
    for found in launches:
        benchmark = found.passed("benchmark") or {}
        if benchmark.get("prompts_sha256", mine) != mine:
            yield f"{PROMPTS}: not the prompts of {found.cell['id']} {found.launch} (its SHA-256 differs)"
            return


def _check(root: Path, launches: Sequence[LaunchRecords]) -> Iterator[str]:
    """check.json is there only where every launch passed."""
    for found in launches if (root / CHECK).exists() else ():
        bad = [kind for kind, record in found.records.items() if record["status"] != "passed"]
        if bad:
            yield f"{CHECK}: says that every launch passed, but {found.cell['id']} {found.launch} did not"
            return


def _config(root: Path, config: dict[str, Any]) -> Iterator[str]:
    """config.yaml is the config of study.json."""
    try:
        found = yaml.load(_text(root / CONFIG), _Plain)
        key = next(differing_keys(found, config), None)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as e:
        yield f"{CONFIG}: cannot be read ({shown(' '.join(str(e).split()))[:100]})"
        return
    if key is not None:
        yield f"{CONFIG}: {key or 'all of it'} is not what study.json says"


def _text(path: Path) -> str:
    if path.stat().st_size > _MAX_TEXT_BYTES:
        raise ValueError(f"larger than {_MAX_TEXT_BYTES >> 20} MiB")
    return path.read_bytes().decode()


def _replacements(root: Path, archive: records.Record) -> Iterator[str]:
    """replacements.csv has the rows of archive.json."""
    try:
        rows = list(csv.DictReader(_text(root / REPLACEMENTS).splitlines()))
    except (OSError, ValueError, csv.Error) as e:
        yield f"{REPLACEMENTS}: cannot be read ({shown(e)[:100]})"
        return
    if rows != [{name: str(value) for name, value in row.items()} for row in archive["replacements"]]:
        yield f"{REPLACEMENTS}: not what {ARCHIVE} says was replaced"


def _crate(root: Path) -> Iterator[str]:
    """ro-crate-metadata.json describes the files that are there."""
    try:
        described = [e for e in strict.load(root / crate.NAME)["@graph"] if "sha256" in e]
        there = set(files(root))
        wrong = [
            e["@id"] for e in described if e["@id"] not in there or sha256(root / e["@id"]) != e["sha256"]
        ]
    except BadInput as e:
        yield below(root, e)
    except (KeyError, TypeError, ValueError) as e:
        yield f"{crate.NAME}: not a crate of ours ({shown(repr(e))[:100]})"
    else:
        yield from (f"{crate.NAME}: describes another {shown(name)[:100]}" for name in wrong[:1])


def _page(root: Path, study: records.Record, archive: records.Record) -> Iterator[tuple[str, bool]]:
    """REVIEWERS.md where it is not the page of these records, and whether this very code wrote it."""
    ours = archive["code"]["sources"] == provenance.sources()
    try:
        same = reviewers.page(root, study, archive) == _text(root / PAGE)
    except (OSError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        same = False
    if not same:
        yield PAGE, ours


def _code(root: Path, archive: records.Record) -> Iterator[tuple[str, bool]]:
    """Schemas and Snakefile that are not those here, and whether this is the commit they are of."""
    here = {f"schemas/{p.name}": p for p in records.SCHEMAS.glob("*.schema.json")}
    here["code/Snakefile"] = Path(BASEDIR) / "Snakefile"
    there = {f"schemas/{p.name}" for p in (root / "schemas").glob("*")}
    both = {n for n in here if (root / n).is_file() and sha256(root / n) == sha256(here[n])}
    other = sorted({*here, *there} - both)
    if other:
        git = provenance.git(BASEDIR)
        ours = bool(git["commit"]) and git["modified"] is False and not archive["code"]["modified"]
        ours = ours and git["commit"] == archive["code"]["commit"]
        yield from ((name, ours) for name in other)
