"""A finished, consistent study in a folder, with what people would not like to share in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from draw import synthetic

from quietgate import records
from quietgate.analyse.launch_records import launched_cells
from quietgate.analyse.profile import profile
from quietgate.files import write_json
from quietgate.share.remake import remake
from quietgate.study.stages import profile_digest

USER, HOST, DOMAIN, TOKEN = "mmustermann", "gpunode17", "cluster.example.edu", "hf_" + "aB3" * 11
API_KEY = "correct-horse-battery"
HOME = f"/home/{USER}"


def write(root: Path, draw: bool = True, **changes: Any) -> Path:
    """Write a small study below `root` and return its folder; `changes` go to the synthetic config."""
    folder = root / "invented"
    steps = changes.pop("steps", [0, 2])
    options = changes.pop("options", {})
    synthetic.write(folder, synthetic.config(steps, **{"launches": 2, **changes}), **options)
    finish(folder)
    if draw:
        remake(folder, folder)
    return folder


def finish(folder: Path) -> None:
    """Profiles as the readers extract them, logs, axes as `steps.study` writes them."""
    study = json.loads((folder / "study.json").read_text())
    study["axes"] = [a for a in study["axes"] if a not in ("steps", "nccl")]
    write_json(folder / "study.json", study)
    for cell in launched_cells(study):
        for launch in sorted((folder / "cells" / cell["id"]).iterdir()):
            extract(launch, study, cell)
            (launch / "server.log").write_text("The server is fired up and ready to roll!\n")


def extract(launch: Path, study: dict[str, Any], cell: dict[str, Any]) -> None:
    """profile.json from the launch's other records."""
    record = json.loads((launch / "profile.json").read_text())
    if record["status"] != "passed":
        return
    envelope = {k: record[k] for k in record if k in _ENVELOPE}
    envelope["digest"] = profile_digest(cell["digests"], study["config"]["capture"])
    # Without reference to the windows of the synthetic profile: its sources are the records.
    records.write(launch / "profile.json", envelope | profile(launch, cell["steps"]))


_ENVELOPE = (
    "schema", "study", "cell", "launch", "instance", "digest", "status", "failure", "started_at", "seconds",
)  # fmt: skip


def personal(folder: Path) -> None:
    """Put names and secrets where real ones are: study, launch records, server and NCCL logs, file names."""
    study = json.loads((folder / "study.json").read_text())
    study["host"]["name"] = f"{HOST}.{DOMAIN}"
    study["config"]["server"]["python"] = f"{HOME}/ml-env/bin/python3"
    study["config"]["server"]["args"]["api-key"] = API_KEY
    write_json(folder / "study.json", study)
    for path in sorted(folder.glob("cells/*/*/launch.json")):
        launch = json.loads(path.read_text())
        process = launch["server"]["processes"][0]
        process["argv"] = [f"{HOME}/ml-env/bin/python3", *process["argv"][1:], "--api-key", API_KEY]
        process["env"]["HF_TOKEN"] = TOKEN
        launch["host"] = {"name": f"{HOST}.{DOMAIN}", "cores": 64}
        write_json(path, launch)
        instance = path.parent / "instances" / launch["instance"]
        log = (
            f"[2026-11-29] server_args=ServerArgs(model_path='{HOME}/models/x', api_key='{API_KEY}')\n"
            f"loaded from /data/{USER}/drafts by {USER}@{HOST}, mail to {USER}@mail.example.org\n"
            f"distributed init at tcp://10.20.30.40:5000; cublas 12.8.4.1; #token: 4711, throughput 12.5\n"
        )
        nccl = f"{HOST}:4711:4711 [0] NCCL INFO NET/Socket : Using [0]eth0:10.20.30.40<0>\n"
        for where in (path.parent, instance):
            (where / "server.log").write_text(log)
            (where / f"nccl.{HOST}.4711.log").write_text(nccl)


def edit(path: Path, **fields: Any) -> None:
    """Change fields of a JSON record; keys are dotted with __, list indices are numbers."""
    record = json.loads(path.read_text())
    for dotted, value in fields.items():
        target = record
        *keys, last = (int(k) if k.isdigit() else k for k in dotted.split("__"))
        for key in keys:
            target = target[key]
        target[last] = value
    write_json(path, record)


def copy(source: Path, target: Path) -> Path:
    """A copy of a study's folder."""
    shutil.copytree(source, target / source.name)
    return target / source.name
