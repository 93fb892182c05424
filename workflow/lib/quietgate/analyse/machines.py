"""The machines and servers of a study's launches, and where they were not all alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quietgate.analyse.launch_records import LaunchRecords
from quietgate.files import read_json
from quietgate.gate.evidence import of_stage
from quietgate.wording import counted


def launches(results: Path, study: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The record `launch` of every launch that started, in run order; `gate`: that of its measured life."""
    found = []
    for launch in study["launches"]:
        folder = results / "cells" / launch["cell"] / launch["launch"]
        record = read_json(folder / "launch.json")
        if isinstance(record, dict) and record.get("status") == "passed":
            life = (read_json(folder / "benchmark.json") or {}).get("instance") or record["instance"]
            gate = read_json(folder / "instances" / str(life) / "gate.json") or {}
            where = _where(record, gate, life) or record
            here = {name: where[name] for name in ("host", "gpus", "driver") if name in where}
            found.append(record | here | {"gate": gate})
    return found


def sglang(record: Mapping[str, Any]) -> str:
    """The version that the server itself gave to the gate; "" where it gave none."""
    return str(_evidence(record, "arguments").get("version") or "")


def nccl(record: Mapping[str, Any]) -> str:
    """The version that NCCL wrote into its log, which may not be the one torch was built with; "" without."""
    return ", ".join(_evidence(record, "nccl").get("versions") or [])


def _evidence(record: Mapping[str, Any], stage: str) -> Mapping[str, Any]:
    return of_stage(record.get("gate") or {}, stage) or {}


def of_measured_life(found: LaunchRecords) -> Mapping[str, Any] | None:
    """The record that says where the measured server life ran; None where that is not known."""
    return _where(found.passed("launch"), found.gates.get(found.instance or ""), found.instance)


def _where(
    launch: Mapping[str, Any] | None, gate: Mapping[str, Any] | None, life: str | None
) -> Mapping[str, Any] | None:
    """The gate's record of a server life, else the launch's if that started it.

    After an interruption a launch goes on with another server, perhaps elsewhere, and `launch.json` stays.
    """
    if gate and gate.get("host"):
        return gate
    return launch if launch and launch["instance"] == life else None


def by_name(gpus: Sequence[Mapping[str, Any]]) -> str:
    """GPUs by name, e.g. "8 x NVIDIA RTX PRO 6000"; "none" without any."""
    names = [str(gpu.get("name")) for gpu in gpus]
    return ", ".join(f"{names.count(n)} x {n}" for n in dict.fromkeys(names)) or "none"


def links(gpus: Sequence[Mapping[str, Any]]) -> str:
    """How many pairs of GPUs are linked how, e.g. "12 x PHB, 16 x SYS"; "" where that was not recorded."""
    pairs = Counter(link for i, gpu in enumerate(gpus) for link in (gpu.get("links") or [])[i + 1 :] if link)
    return ", ".join(f"{count} x {link}" for link, count in pairs.items())


def identity(record: Mapping[str, Any]) -> tuple[str, ...]:
    """What tells one machine from another of the same kind: host name and the GPUs' own numbers."""
    host = (record.get("host") or {}).get("name")
    return (str(host or ""), *sorted(str(gpu.get("uuid")) for gpu in record.get("gpus") or []))


def facts(record: Mapping[str, Any]) -> dict[str, str]:
    """What of a launch's machine and server should be the same in all launches, as words."""
    host = record.get("host") or {}
    gib = (host.get("memory_mib") or 0) / 1024
    cores, kernel = host.get("cores"), f"{host.get('system') or ''} {host.get('kernel') or ''}".strip()
    processor = host.get("processor")
    many = f", {counted(cores, 'core')}" if cores else ""
    return {
        "host": str(host.get("name") or ""),
        "processor": f"{processor}{many}" if processor else "",
        "memory": f"{gib:.3g} GiB" if gib else "",
        "system": kernel,
        "GPUs": by_name(record.get("gpus") or []),
        "links between pairs of GPUs": links(record.get("gpus") or []),
        "driver": str(record.get("driver") or "none"),
        "SGLang": sglang(record),
        "NCCL": nccl(record),
    }


def distinct(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """Each fact's values over the launches, each with the launches that have it."""
    found: dict[str, dict[str, list[str]]] = {}
    for record in records:
        for name, value in facts(record).items():
            if value:
                found.setdefault(name, {}).setdefault(value, []).append(_name(record))
    return found


def differences(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence where there were several machines, and one for each fact in which launches differ."""
    found = []
    places: dict[tuple[str, ...], list[str]] = {}
    for record in records:
        places.setdefault(identity(record), []).append(_name(record))
    if len(places) > 1:
        told = "; ".join(_places(some) for some in places.values())
        found.append(
            f"launches ran on {len(places)} machines ({told}): cells are compared within one machine"
        )
    for name, values in distinct(records).items():
        if len(values) < 2:
            continue
        told = "; ".join(f"{value}: {_places(places)}" for value, places in values.items())
        found.append(f"launches of this study did not all have the same {name} ({told})")
    return found


def _name(record: Mapping[str, Any]) -> str:
    return f"{record['cell']} {record['launch']}"


def _places(places: list[str]) -> str:
    return ", ".join(places) if len(places) < 4 else f"{len(places)} launches"
