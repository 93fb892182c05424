"""What the machine did during the timed passes: the table, what to warn of, and what to say in a line.

Whoever compares launches assumes that the machine was the same for all of them. Here stands what was seen
of it: cores that other programs had, how long fixed work took, clock and power of the GPUs, and time in which
these were held back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from quietgate.analyse.launch_records import LaunchRecords
from quietgate.wording import counted

Row = dict[str, Any]

COLUMNS = (
    "launch", "concurrency", "repeat", "cores", "server_cores", "client_cores", "other_cores", "loop_ms",
    "gpu_power_w", "gpu_energy_j_per_token", "gpu_clock_mhz", "gpu_temperature_c",
    "power_limited", "heat_limited",
)  # fmt: skip

# One core for half of a pass: what another program has, the server's own processes may wait for.
OTHERS_CORES = 0.5
# Share of a pass in which power or heat held a GPU back.
HELD_BACK = 0.01
# Seen of the counter for power (driver 580.159), so that shares of short passes are coarse.
_LUMPS = "which a driver counts in lumps, on H200 of about 0.3 s"
# A launch is slow whose fixed work took so many times the fastest launch's, each by the median of its passes:
# launches are what is compared, and a percentile over passes would leave out the one slow launch among few.
# Seen on a shared virtual machine at rest: 1.9 ms, steady to 4 %, with stretches at 2.9 ms, as with somebody
# else on the other thread of the core.
PACE_RATIO = 1.3
# Launches named in a sentence.
_NAMED = 6
# Clocks of one kind of GPU that differ by more than this make different machines of it.
CLOCK_RATIO = 1.03


def rows(found: LaunchRecords) -> Iterator[Row]:
    """A row for each timed pass whose surroundings were recorded.

    `other_cores` are those of other programs and, on a virtual machine, of other guests. `loop_ms` is the
    mean of before and after, None in earlier records. Power and energy are sums over the server's GPUs;
    clock is the slowest one's, temperature the hottest one's, the limited shares (of the pass) the worst
    one's.
    """
    for one in (found.passed("benchmark") or {}).get("passes", []):
        around = one.get("surroundings")
        if around is None:
            continue
        gpus = around["gpus"]
        energy, tokens = _over(sum, gpus, "energy_j"), (one["output_tokens_per_s"] or 0) * one["wall_s"]
        others = around["other_cores"]
        yield {
            "concurrency": one["concurrency"],
            "repeat": one["repeat"],
            "cores": around["cores"],
            "server_cores": around["server_cores"],
            "client_cores": around["client_cores"],
            "other_cores": None if others is None else others + around["stolen_cores"],
            "loop_ms": _mean(around.get("loop_ms")),
            "gpu_power_w": _over(sum, gpus, "power_w"),
            "gpu_energy_j_per_token": energy / tokens if energy is not None and tokens else None,
            "gpu_clock_mhz": _over(min, gpus, "sm_clock_mhz"),
            "gpu_temperature_c": _over(max, gpus, "temperature_c"),
            "power_limited": _limited(gpus, "power", around["window_s"]),
            "heat_limited": _limited(gpus, "heat", around["window_s"]),
        }


def _mean(loop_ms: Mapping[str, float | None] | None) -> float | None:
    before, after = (loop_ms["before"], loop_ms["after"]) if loop_ms else (None, None)
    return None if before is None or after is None else (before + after) / 2


def _over(function: Any, gpus: list[Row], name: str) -> Any:
    """Of all GPUs, or None where any does not tell (or there is none)."""
    values = [gpu[name] for gpu in gpus]
    return function(values) if values and None not in values else None


def _limited(gpus: list[Row], by: str, window_s: float) -> float | None:
    seconds = [gpu["held_back_s"][by] for gpu in gpus]
    known = [s for s in seconds if s is not None]
    return min(1.0, max(known) / window_s) if known and window_s > 0 else None


def warnings(frame: pd.DataFrame, cells: pd.DataFrame) -> list[str]:
    """A sentence for each way in which the machine was not the server's alone, or not always the same.

    Args:
        frame, cells: the tables `surroundings` and `cells`; the latter knows each launch's machine.
    """
    found = []
    launches = frame.groupby(["cell", "launch"], sort=False)
    others = launches["other_cores"].median()
    if (busy := others[others >= OTHERS_CORES]).size:
        found.append(
            f"other programs had {_range(busy, 1)} cores during the timed passes of {busy.size} of"
            f" {counted(launches.ngroups, 'launch')} (median of each): nothing should run beside a timed pass"
        )
    found += _paces(frame, cells)
    for column, what, cure in (
        ("power_limited", f"their power limit ({_LUMPS})", "raise the limit, or lock the clocks below it"),
        ("heat_limited", "heat", "see to the cooling, or lock the clocks"),
    ):
        worst = launches[column].max()
        if (held := worst[worst > HELD_BACK]).size:
            found.append(
                f"GPUs were held back by {what} in {held.size} of"
                f" {counted(launches.ngroups, 'launch')}, for up to"
                f" about {100 * held.max():.0f} % of a pass: {cure} (`nvidia-smi -q -d PERFORMANCE`)"
            )
    known = frame.dropna(subset="gpu_clock_mhz")
    for level in sorted(known["concurrency"].unique().tolist()):
        clocks = known.loc[known["concurrency"] == level, "gpu_clock_mhz"]
        if clocks.max() > CLOCK_RATIO * clocks.min():
            found.append(
                f"GPU clocks at the end of a pass were {_range(clocks, 0)} MHz at"
                f" {counted(level, 'stream')}: launches at other clocks are other machines; lock them"
                " (`nvidia-smi --lock-gpu-clocks`)"
            )
    return found


def _paces(frame: pd.DataFrame, cells: pd.DataFrame) -> Iterator[str]:
    """A sentence for each machine that was slower in some launches than in its fastest one."""
    if "loop_ms" not in frame:
        return
    launch = ["cell", "launch"]
    medians = frame.groupby(launch, sort=False)["loop_ms"].median().dropna().rename("loop_ms").reset_index()
    medians = medians.merge(cells[[*launch, "machine"]].drop_duplicates(launch), on=launch, how="left")
    several = medians["machine"].nunique() > 1
    for machine, some in medians.groupby("machine"):
        fastest = some["loop_ms"].min()
        slow = some[some["loop_ms"] > PACE_RATIO * fastest]
        if slow.empty:
            continue
        slow = slow.sort_values("loop_ms", ascending=False, kind="stable")
        named = [f"{cell} {name}" for cell, name in zip(slow["cell"], slow["launch"], strict=True)]
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        where = f"machine {machine}" if several else "the machine"
        yield (
            f"{where} did not keep its pace: fixed work on one core took {fastest:.2f} ms in the fastest"
            f" launch, but over {PACE_RATIO:g} times that, up to {slow['loop_ms'].max():.2f} ms, in"
            f" {len(slow)} of {counted(len(some), 'launch')} ({', '.join(named[:_NAMED])}{more}): pin the"
            " processor's clocks, use a host that nobody shares, or measure more launches"
        )


def facts(frame: pd.DataFrame | None) -> list[tuple[str, str]]:
    """What was seen during the timed passes, as names and words; nothing where nothing was recorded."""
    if frame is None or frame.empty:
        return []
    told: Mapping[str, tuple[str, int]] = {
        "cores of other programs": ("other_cores", 2),
        "GPU power, W": ("gpu_power_w", 0),
        "GPU energy, J per token": ("gpu_energy_j_per_token", 3),
        "GPU clock, MHz": ("gpu_clock_mhz", 0),
    }
    found = [
        (f"{name}, while timed", _range(frame[column].dropna(), digits))
        for name, (column, digits) in told.items()
        if frame[column].notna().any()
    ]
    if "loop_ms" in frame and (loop := frame["loop_ms"].dropna()).size:
        words = f"took {_range(loop, 2)} ms, median {loop.median():.2f}"
        found.append(("pace: fixed work on one core, around timed passes", words))
    return found


def _range(values: pd.Series[float], digits: int) -> str:
    low, high = f"{values.min():.{digits}f}", f"{values.max():.{digits}f}"
    return low if low == high else f"{low} to {high}"
