"""NCCL's choice per collective (bytes -> algorithm, protocol, channels), in every version's wording."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

# 2.24 and later: "AllReduce: 16384 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}";
# 2.23: "AllReduce: 16384 Bytes -> Algo 1 proto 0 time 12.3"; 2.20 to 2.22 without the collective.
_CHOICE = re.compile(
    rb"(?:(\w+): +)?(\d+) Bytes -> Algo (\w+) proto (\w+)(?:.*channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})?"
)
# Symmetric-memory kernels (registered buffers) have neither algorithm nor protocol.
_SYMMETRIC = re.compile(rb"(\w+) \[Symmetric\]: (\d+) Bytes -> Kernel (\w+)(?:.*nchannels (\d+))?")
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
_MOST_DISTINCT = 100_000

Key = tuple[str | None, int, str, str | None, int | None]


class Choices:
    """Counts equal choices; a long run logs the same few over and over."""

    def __init__(self) -> None:
        self._counts: Counter[Key] = Counter()

    @property
    def count(self) -> int:
        """Lines seen."""
        return sum(self._counts.values())

    def see(self, said: bytes) -> None:
        """Take one line's message; what is no choice, or a cut one, is skipped."""
        if found := _CHOICE.search(said):
            collective, size, algorithm, protocol, low, high = found.groups()
            if high is None and b" channel{" in said:
                return
            channels = int(high) - int(low) + 1 if high is not None else None
            key: Key = (
                collective.decode() if collective else None,
                int(size),
                _named(algorithm, _ALGORITHMS),
                _named(protocol, _PROTOCOLS),
                channels,
            )
        elif found := _SYMMETRIC.search(said):
            collective, size, kernel, count = found.groups()
            key = (
                collective.decode(),
                int(size),
                f"SYMMETRIC:{kernel.decode()}",
                None,
                int(count) if count else None,
            )
        else:
            return
        if key in self._counts or len(self._counts) < _MOST_DISTINCT:
            self._counts[key] += 1

    def merge(self, other: Choices) -> None:
        """Add another file's."""
        self._counts.update(other._counts)

    def listed(self) -> list[dict[str, Any]]:
        """Every distinct choice with its count, by collective and bytes."""
        order = sorted(self._counts.items(), key=lambda item: tuple(str(x or "").zfill(20) for x in item[0]))
        return [
            {
                "collective": collective,
                "bytes": size,
                "algorithm": algorithm,
                "protocol": protocol,
                "channels": channels,
                "count": count,
            }
            for (collective, size, algorithm, protocol, channels), count in order
        ]


def _named(text: bytes, names: tuple[str, ...]) -> str:
    if text.isdigit():
        number = int(text)
        return names[number] if number < len(names) else text.decode()
    return text.decode().upper()


def compare_choices(
    a: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    b: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    largest_bytes: int | None = None,
) -> dict[str, Any]:
    """Which message sizes two profiles serve alike, and which not.

    Args:
        a, b: what `read` returned for each profile, or its `choices`.
        largest_bytes: leave out larger messages (decode sends small ones), None for all.

    Returns:
        alike, different, only_a, only_b: lists of {collective, bytes, a, b}, a and b being the
        distinct [algorithm, protocol, channels]; same: True where every size that both logged is
        served alike, None where they have no size in common.
    """
    ours, theirs = _served(a, largest_bytes), _served(b, largest_bytes)
    out: dict[str, Any] = {"alike": [], "different": [], "only_a": [], "only_b": []}
    for key in sorted(ours.keys() | theirs.keys(), key=lambda k: (k[0] or "", k[1])):
        one, other = ours.get(key), theirs.get(key)
        entry = {
            "collective": key[0],
            "bytes": key[1],
            "a": sorted(map(list, one or ()), key=str) or None,
            "b": sorted(map(list, other or ()), key=str) or None,
        }
        kind = (
            "only_b"
            if one is None
            else "only_a"
            if other is None
            else "alike"
            if one == other
            else "different"
        )
        out[kind].append(entry)
    common = bool(out["alike"] or out["different"])
    out["same"] = not out["different"] if common else None
    return out


def _served(
    source: Mapping[str, Any] | Sequence[Mapping[str, Any]], largest_bytes: int | None
) -> dict[tuple[str | None, int], set[tuple[Any, ...]]]:
    choices = source["choices"] if isinstance(source, Mapping) else source
    served: dict[tuple[str | None, int], set[tuple[Any, ...]]] = {}
    for c in choices:
        if largest_bytes is None or c["bytes"] <= largest_bytes:
            how = (c["algorithm"], c["protocol"], c["channels"])
            served.setdefault((c["collective"], c["bytes"]), set()).add(how)
    return served
