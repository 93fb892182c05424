"""What NCCL said of itself, rank by rank: version, variables it took, transports, and its choices.

A kernel's name proves no protocol (all of them are called ..._RING_LL or ..._TREE_LL), so protocols and
algorithms come only from NCCL's own lines: the choice per collective, and the matrix of what is enabled.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quietgate.errors import BadInput
from quietgate.inspect.failures import Watch
from quietgate.inspect.lines import blocks
from quietgate.inspect.nccl_choices import Choices, compare_choices
from quietgate.inspect.prefixes import unwrapped

__all__ = ["compare_choices", "read"]

# An application may have been "compiled with" another one than it runs with.
_VERSION = re.compile(
    rb"(?<!compiled with )\b[NR]CCL (?:library )?version :? ?(\d+\.\d+(?:\.\d+)*(?:\+[a-z]+[\d.]*\d)?)"
)
_SET = re.compile(rb"\b((?:NCCL|RCCL)_[A-Z0-9_]+) set (?:by environment )?to (.*?)\s*$")
# Without NCCL's own prefix the words may stand in anybody's text: only a line of nothing else counts.
_BARE_SET = re.compile(rb"^\s*((?:NCCL|RCCL)_[A-Z0-9_]+) set by environment to (\S+)\s*$")
_INTEGER_DOT = re.compile(rb"-?\d+\.")
# What the file's end cuts: a number without its dot, a choice without channels, a transport within a word.
_CUT = re.compile(
    rb" set by environment to -?\d+$| proto \w+$"
    rb"| via (?!.*(?:IPC|CUMEM|read|direct|pointer|memory|GDRDMA|Shared|[\d)\]])$)"
)
# Ray shows a line of several actors once.
_REPEATED = re.compile(rb"\s*\[repeated \d+x across cluster\].*$")
_INIT = re.compile(rb"\brank (\d+) n[rR]anks (\d+).*- Init (START|COMPLETE)")
_WHO = re.compile(rb"([\w.-]+):(\d+):\d+ \[(\d+)\] NCCL (?:INFO|WARN) ")
_CHANNELS = re.compile(
    rb"(\d+) coll channels, (?:(\d+) collnet channels, )?(?:(\d+) nvls channels, )?(\d+) p2p"
)
_CHANNELS_RCCL = re.compile(
    rb"coll channels:(\d+) (?:collnet channels:(\d+), )?(?:nvls channels:(\d+), )?p2p channels:(\d+)"
)
_RING = re.compile(rb"Channel \d+/(\d+) :\s+\d+")
# A network's name may have blanks ("NET/AWS Libfabric/0"); RCCL adds " comm 0x... nRanks ...".
_VIA = re.compile(
    rb"(?:Channel|CollNet|Coll|Ring) \d+(?:/\d+)? : \d+.* via"
    rb" (direct shared memory|\S+(?:(?: [\w.-]+)+/\S*)?)"
)
_PLUGIN = re.compile(rb"\b(NET|TUNER|PROFILER|ENV|GIN|RMA)/Plugin\b ?:? ?(.*)")
_NETWORK = re.compile(rb"Using network (\S.*)")
_INVALID = re.compile(
    rb"Invalid (?:NCCL|RCCL)_|Unrecognized (?:element|prefix)|[Nn]o algorithm/protocol\b.* available"
    rb"|NCCL_\w+ .*(?:ignored|invalid|unknown)"
)
_NO_PLUGIN = re.compile(r"(?i)could not find|no plugin|internal|failed|returned|cannot open")
_DEVICE = re.compile(r"\d+(?:\(\d+\)|\[\w+\])?")
_MATRIX_ROW = re.compile(rb"(?:^|\s)(\w+) \|((?:\s+\d)+)\s*\|((?:\s+\d)+)\s*$")
_ALGORITHM_NAMES = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
_PROTOCOL_NAMES = ("LL", "LL128", "Simple")
# Where the user left them unset, SGLang sets them before its ranks start.
_SGLANG_SETS = {"NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0", "NCCL_GRAPH_REGISTER": "0"}
_MOST_KEPT = 50
# Bytes: NCCL's own lines are far shorter, and expressions take ever longer on a longer one.
_LONGEST = 4 << 10


@dataclass
class _File:
    """What one file says."""

    path: Path
    lines: int = 0
    versions: list[str] = field(default_factory=list)
    variables: dict[str, list[str]] = field(default_factory=dict)
    ranks_of: dict[int, set[int]] = field(default_factory=dict)  # by the communicator's size
    processes: set[str] = field(default_factory=set)
    starts: int = 0
    completes: int = 0
    channels: Counter[str] = field(default_factory=Counter)
    rings: int = 0
    transports: Counter[str] = field(default_factory=Counter)
    plugins: dict[str, str] = field(default_factory=dict)
    networks: set[str] = field(default_factory=set)
    invalid: list[str] = field(default_factory=list)
    enabled: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    choices: Choices = field(default_factory=Choices)
    watch: Watch = field(default_factory=Watch)

    @property
    def world(self) -> int | None:
        """The size of the largest communicator."""
        return max(self.ranks_of, default=None)

    @property
    def ranks(self) -> set[int]:
        """Ranks in the largest communicator; a smaller one, split off, numbers them anew."""
        return self.ranks_of[self.world] if self.world is not None else set()


def read(paths: Iterable[Path]) -> dict[str, Any]:
    """One object about the NCCL logs of one server, a file per rank or several ranks in a file.

    Lines of anything else between NCCL's are skipped. BadInput where no file holds a line of NCCL.
    """
    files = [_read_one(Path(p)) for p in paths]
    if not files:
        raise BadInput("inspect nccl: name one or more NCCL log files")
    if not any(f.lines for f in files):
        names = ", ".join(str(f.path) for f in files)
        raise BadInput(
            f"{names}: no line of NCCL; run with NCCL_DEBUG=INFO and NCCL_DEBUG_FILE=/dir/nccl.%h.%p.log"
        )
    choices = Choices()
    for f in files:
        choices.merge(f.choices)
    values, conflicts = _variables(files)
    listed = choices.listed()
    return {
        "versions": list(dict.fromkeys(v for f in files for v in f.versions)),
        "set_by_environment": values,
        "conflicting_values": conflicts,
        "maybe_set_by_sglang": sorted(n for n, v in _SGLANG_SETS.items() if values.get(n) == v),
        "channels": max((c for f in files for c in (f.channels["coll"], f.rings)), default=0) or None,
        "channel_counts": _most(f.channels for f in files),
        "transports": dict(sum((f.transports for f in files), Counter())),
        "networks": sorted(set().union(*(f.networks for f in files))),
        "algorithms": sorted({c["algorithm"] for c in listed}),
        "protocols": sorted({c["protocol"] for c in listed if c["protocol"]}),
        "enabled": next((f.enabled for f in files if f.enabled), None),
        "choices": listed,
        "plugins": {k: v for f in reversed(files) for k, v in f.plugins.items()},
        "tuner_plugin": next(
            (t for f in files if (t := f.plugins.get("tuner")) and not _NO_PLUGIN.search(t)), None
        ),
        "ranks": sorted(set().union(*(f.ranks for f in files))),
        "world_size": max((f.world for f in files if f.world), default=None),
        "init_start_count": sum(f.starts for f in files),
        "init_complete_count": sum(f.completes for f in files),
        "invalid_values": list(dict.fromkeys(t for f in files for t in f.invalid))[:_MOST_KEPT],
        "failure": _failure(files),
        "warnings": _warnings(files, values),
        "files": [_of_file(f) for f in files],
    }


def _read_one(path: Path) -> _File:
    found = _File(path)
    for block in blocks(path, "NCCL log"):
        found.watch.see(block)
        in_matrix = False
        for line in block.lines:
            if b"CCL " in line or b"CCL_" in line:
                if block.cut and line is block.lines[-1] and _CUT.search(line[-_LONGEST:]):
                    continue
                _line(found, unwrapped(line)[:_LONGEST])
                in_matrix = b"Func/Proto/Algo Matrix" in line
            elif in_matrix or (b" | " in line and b"   " in line):
                _matrix_row(found, line[:_LONGEST])
    return found


def _line(found: _File, line: bytes) -> None:
    if b" across cluster]" in line:
        line = _REPEATED.sub(b"", line)
    at = line.rfind(b"NCCL INFO ")
    said = line[at + 10 :] if at >= 0 else line
    if at >= 0 or b"NCCL WARN" in line:
        found.lines += 1
        if who := _WHO.search(line):
            found.processes.add(b":".join(who.groups()[:2]).decode("utf-8", "replace"))
    if b" Bytes -> " in said:
        found.choices.see(said)
        return
    if b" via " in said and (via := _VIA.search(said)):
        # The device's number says nothing of the kind of transport.
        parts = [p for p in via[1].decode("utf-8", "replace").split("/") if not _DEVICE.fullmatch(p)]
        found.transports["/".join(parts)] += 1
        return
    for version in _VERSION.findall(line):
        if (text := version.decode()) not in found.versions:
            found.versions.append(text)
            found.lines += at < 0  # NCCL_DEBUG=VERSION prints this line alone, bare
    for name, value in (_SET if at >= 0 else _BARE_SET).findall(said):
        text = (value[:-1] if _INTEGER_DOT.fullmatch(value) else value).decode("utf-8", "replace")
        seen = found.variables.setdefault(name.decode(), [])
        if text not in seen:
            seen.append(text)
    if b"Init " in said and (init := _INIT.search(said)):
        found.ranks_of.setdefault(int(init[2]), set()).add(int(init[1]))
        if init[3] == b"START":
            found.starts += 1
        else:
            found.completes += 1
    elif b"hannel" in said:
        _channels(found, said)
    elif b"/Plugin" in said and (plugin := _PLUGIN.search(said)):
        if not plugin[2].startswith(b"Closing"):
            text = plugin[2].decode("utf-8", "replace").strip()[:200]
            # The network's plugin may bring one for collectives along, in lines of the same kind.
            found.plugins["collnet" if "collnet" in text.lower() else plugin[1].decode().lower()] = text
    elif network := _NETWORK.search(said):
        found.networks.add(network[1].decode("utf-8", "replace").strip())
    if len(found.invalid) < _MOST_KEPT and _INVALID.search(line):
        found.invalid.append(said.decode("utf-8", "replace").strip()[:300])


def _channels(found: _File, said: bytes) -> None:
    if counts := _CHANNELS.search(said) or _CHANNELS_RCCL.search(said):
        for name, count in zip(("coll", "collnet", "nvls", "p2p"), counts.groups(), strict=True):
            if count is not None:
                found.channels[name] = max(found.channels[name], int(count))
    elif ring := _RING.search(said):
        found.rings = max(found.rings, int(ring[1]))


def _matrix_row(found: _File, line: bytes) -> None:
    row = _MATRIX_ROW.search(line)
    if row is None:
        return
    protocols, algorithms = (text.split() for text in row.groups()[1:])
    if len(protocols) == len(_PROTOCOL_NAMES):
        found.enabled[row[1].decode()] = {
            "protocols": [n for n, v in zip(_PROTOCOL_NAMES, protocols, strict=True) if v != b"0"],
            "algorithms": [n for n, v in zip(_ALGORITHM_NAMES, algorithms, strict=False) if v != b"0"],
        }


def _variables(files: list[_File]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Values by name; where ranks disagree the first stands, and all are listed apart."""
    every: dict[str, list[str]] = {}
    for f in files:
        for name, values in f.variables.items():
            known = every.setdefault(name, [])
            known += [v for v in values if v not in known]
    return {n: v[0] for n, v in every.items()}, {n: v for n, v in every.items() if len(v) > 1}


def _most(counts: Iterable[Mapping[str, int]]) -> dict[str, int] | None:
    most: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            most[name] = max(most.get(name, 0), count)
    return most or None


def _failure(files: list[_File]) -> dict[str, Any] | None:
    for f in files:
        failure = f.watch.result()
        if failure is not None and failure.failure_class != "stopped_by_us":
            return {
                "class": failure.failure_class,
                "message": failure.message,
                "line": failure.line,
                "file": f.path.name,
                "advice": failure.advice,
            }
    return None


def _warnings(files: list[_File], values: Mapping[str, str]) -> list[str]:
    warnings = []
    versions = {v.partition("+")[0] for f in files for v in f.versions}
    if len(versions) > 1:
        warnings.append(f"several NCCL versions in these files: {', '.join(sorted(versions))}")
    if not any(f.completes for f in files):
        warnings.append(
            "no communicator completed its start in these files: a variable that is not named here may "
            "still be set, an absent line proves nothing"
        )
    elif not values:
        warnings.append(
            "NCCL names no variable set by environment: its defaults, or NCCL_DEBUG_SUBSYS without ENV"
        )
    return warnings


def _of_file(f: _File) -> dict[str, Any]:
    return {
        "file": f.path.name,
        "processes": sorted(f.processes),
        "ranks": sorted(f.ranks),
        "versions": f.versions,
        "set_by_environment": {n: v[0] for n, v in f.variables.items()},
        "init_complete_count": f.completes,
        "transports": dict(f.transports),
        "choices": f.choices.count,
    }
