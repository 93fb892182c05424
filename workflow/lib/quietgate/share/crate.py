"""ro-crate-metadata.json: the archive described for machines, after the Workflow Run Crate profile."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quietgate import records
from quietgate.files import read_json, sha256
from quietgate.wording import counted

NAME = "ro-crate-metadata.json"
LICENCE = "https://creativecommons.org/licenses/by/4.0/"

_RO_CRATE = "1.1"
_PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
_WORKFLOW = "code/Snakefile"
_TYPES = {
    ".csv": "text/csv",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".html": "text/html",
    ".md": "text/markdown",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".yaml": "application/yaml",
    ".patch": "text/x-diff",
}


def metadata(root: Path, study: Mapping[str, Any], archive: Mapping[str, Any], names: list[str]) -> bytes:
    """The metadata of an archive that holds the files `names` below `root`."""
    # Imported here: a reviewer's installation may do without it.
    from rocrate.model.contextentity import ContextEntity
    from rocrate.rocrate import ROCrate

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        crate = ROCrate(version=_RO_CRATE)
        crate.name = f"Results of the study {study['study']}"
        crate.description = study["config"].get("title") or (
            "SGLang under every combination of speculative steps and NCCL profile"
        )
        crate.datePublished = f"{archive['date']}T00:00:00+00:00"
        licence = ContextEntity(
            crate,
            LICENCE,
            {"@type": "CreativeWork", "name": "CC BY 4.0", "description": "Creative Commons Attribution 4.0"},
        )
        crate.add(licence)
        crate.license = licence
        profiles = [
            ContextEntity(
                crate, url, {"@type": "CreativeWork", "name": name, "version": url.rsplit("/", 1)[-1]}
            )
            for url, name in _PROFILES.items()
        ]
        crate.add(*profiles)
        crate.root_dataset["conformsTo"] = profiles
        workflow = crate.add_workflow(
            str(root / _WORKFLOW),
            _WORKFLOW,
            main=True,
            lang="snakemake",
            properties={
                "name": "Quietgate",
                "version": archive["code"]["version"],
                **_facts(root, _WORKFLOW),
            },
        )
        workflow["license"] = "https://spdx.org/licenses/MIT"
        workflow["encodingFormat"] = "text/plain"
        single = [n for n in names if not n.startswith(("cells/", "schemas/")) and n not in (_WORKFLOW, NAME)]
        files = {n: crate.add_file(str(root / n), n, properties=_file(root, n)) for n in single}
        launches = [_launch(crate, root, study, x) for x in study["launches"]]
        folders = [x for x in launches if x is not None]
        crate.add_dataset(
            str(root / "schemas"), "schemas/", properties={"name": "JSON Schemas of the records"}
        )
        run = ContextEntity(crate, "#run", _run(root, study))
        run["instrument"] = workflow
        run["object"] = _one_or_all(
            [files[n] for n in single if n == "config.yaml" or n.startswith("inputs/")]
        )
        run["result"] = [
            *folders,
            *(files[n] for n in single if n.startswith(("tables/", "figures/")) or n == "report.html"),
        ]
        crate.add(run)
        crate.root_dataset["mentions"] = run
        graph: dict[str, Any] = crate.metadata.generate()
    return (json.dumps(graph, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()


def _one_or_all(entities: list[Any]) -> Any:
    """RO-Crate wants a single value where there is one."""
    return entities[0] if len(entities) == 1 else entities


def _facts(root: Path, name: str) -> dict[str, str]:
    return {"sha256": sha256(root / name), "contentSize": str((root / name).stat().st_size)}


def _file(root: Path, name: str) -> dict[str, str]:
    """A file's properties; SHA256SUMS is written after this and cannot be described by its bytes."""
    return {
        "name": name,
        "encodingFormat": _TYPES.get(Path(name).suffix, "text/plain"),
        **_facts(root, name),
    }


def _launch(crate: Any, root: Path, study: Mapping[str, Any], asked: Mapping[str, Any]) -> Any:
    name = f"cells/{asked['cell']}/{asked['launch']}"
    if not (root / name).is_dir():
        return None
    record = read_json(root / name / "benchmark.json") or {}
    properties = {
        "name": f"Launch {asked['launch']} of {asked['cell']}",
        "description": f"Records, raw requests and logs of one launch ({record.get('status', 'missing')})",
    }
    return crate.add_dataset(str(root / name), f"{name}/", properties=properties)


def _run(root: Path, study: Mapping[str, Any]) -> dict[str, Any]:
    """The run as an action: when, and whether every launch passed."""
    times = [study["written_at"]]
    failed = 0
    for asked in study["launches"]:
        folder = root / "cells" / asked["cell"] / asked["launch"]
        for path in sorted(folder.glob("*.json")):
            record: records.Record = read_json(path) or {}
            times += [t for t in (record.get("started_at"), record.get("ended_at")) if isinstance(t, str)]
        failed += (read_json(folder / "benchmark.json") or {}).get("status") != "passed"
    status = "FailedActionStatus" if failed == len(study["launches"]) else "CompletedActionStatus"
    return {
        "@type": "CreateAction",
        "name": f"Run of the study {study['study']}",
        "description": f"{counted(len(study['launches']), 'launch')}, {failed} failed",
        "startTime": f"{min(times)[:19]}Z",
        "endTime": f"{max(times)[:19]}Z",
        "actionStatus": {"@id": f"http://schema.org/{status}"},
    }
