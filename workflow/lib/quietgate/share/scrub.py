"""Secrets, user names, hosts and home folders replaced in what leaves the house; see docs/sharing.md.

Numbers, names of the study and texts that the model wrote stay as they are (but for secrets in a text),
so that a scrubbed study still verifies and redraws.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from quietgate.share import names
from quietgate.share.names import Found, Replacements
from quietgate.share.secrets import SECRET, SHAPES
from quietgate.wording import counted

# Files that hold no text of ours to read.
BINARY = {".pdf", ".png"}
# Fields that hold identifiers of the study, never free text.
_IDENTIFIERS = frozenset(
    {
        "schema", "study", "cell", "launch", "instance", "digest", "status", "class", "stage", "kind",
        "name", "nccl", "reference", "phase", "prompt_id",
    }
)  # fmt: skip

Key = tuple[str, str]


def text_of(path: Path) -> str:
    """A file's text, unpacked where it is gzipped; bytes that are no text survive the way back."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode("utf-8", "surrogateescape")


def find(root: Path, files: Iterable[str], identifiers: Iterable[str]) -> Replacements:
    """Read every file of the results once and number what must be replaced."""
    found = Found()
    for name in files:
        found.read_name(name)
        path = root / name
        if path.suffix in BINARY:
            continue
        text = text_of(path)
        found.read_text(text, name)
        if path.suffix == ".json":
            found.read_json(json.loads(text))
        elif path.suffix == ".jsonl":
            for line in text.splitlines():
                # Most lines name no secret; parsing all of them would take longer than the rest.
                if _may_hold_secret(line):
                    found.read_json(json.loads(line))
    return names.number(found, identifiers)


def _may_hold_secret(line: str) -> bool:
    low = line.lower()
    return any(w in low for w in ('token"', "secret", "passw", "api_key", "api-key", "credential"))


class Scrubber:
    """Applies replacements and counts them.

    Attributes:
        places: (kind, replacement) -> how often it was made.
        files: the same -> in which files.
    """

    def __init__(self, replacements: Replacements, identifiers: Iterable[str] = ()):
        self.replacements = replacements
        self.identifiers = frozenset(identifiers)
        self.places: Counter[Key] = Counter()
        self.files: defaultdict[Key, set[str]] = defaultdict(set)
        self._file = ""
        r = replacements
        tables = {
            "secret": dict.fromkeys(r.secrets, SECRET),
            "home": r.homes,
            "host": r.hosts,
            "user": r.users,
            "address": r.addresses,
        }
        self._literals = [(kind, _any_of(kind, table), table) for kind, table in tables.items() if table]

    def text(self, text: str) -> str:
        """Free text with everything replaced."""
        text = self.secrets(text)
        for kind, pattern, table in self._literals:
            if kind != "secret":
                text = self._sub(kind, pattern, table, text)
        return self._sub("email", names.EMAIL, None, text, "[email]")

    def secrets(self, text: str) -> str:
        """Text with only its secrets replaced."""
        for kind, pattern, table in self._literals:
            if kind == "secret":
                text = self._sub(kind, pattern, table, text)
        return self._sub("secret", SHAPES, None, text, SECRET)

    def _sub(
        self, kind: str, pattern: re.Pattern[str], table: Mapping[str, str] | None, text: str, new: str = ""
    ) -> str:
        def one(found: re.Match[str]) -> str:
            replacement = table[found[0]] if table else new
            self.places[kind, replacement] += 1
            self.files[kind, replacement].add(self._file)
            return replacement

        return pattern.sub(one, text)

    def value(self, value: Any, key: str = "") -> Any:
        """Parsed JSON with its texts replaced; keys, numbers and identifiers stay."""
        if isinstance(value, str):
            if (key in _IDENTIFIERS and not _is_log(value)) or value in self.identifiers:
                return value
            return self.text(value)
        if isinstance(value, list):
            return [self.value(v) for v in value]
        if isinstance(value, dict):
            out = {self._key(k): self.value(v, k) for k, v in value.items()}
            if isinstance(value.get("host"), dict) and isinstance(value["host"].get("name"), str):
                out["host"]["name"] = self.text(value["host"]["name"])
            if isinstance(value.get("text"), str) and "text_sha256" in value:
                out["text"] = self.secrets(value["text"])
                if out["text"] != value["text"]:
                    out["text_sha256"] = hashlib.sha256(out["text"].encode()).hexdigest()
            return out
        return value

    def _key(self, key: str) -> str:
        """A key is a field's name, unless it is a path or a log's name."""
        return (
            self.text(key) if "/" in key or key.startswith("nccl.") or key in self.replacements.hosts else key
        )

    def name(self, name: str) -> str:
        """A file's path below the results; only NCCL puts a host into one."""
        head, _, last = name.rpartition("/")
        if not _is_log(last):
            return name
        self._file = name
        return f"{head}/{self.text(last)}" if head else self.text(last)

    def file(self, path: Path, name: str) -> bytes:
        """What the file `name` at `path` holds, replaced; the very same bytes where nothing is to replace."""
        self._file = name
        data = path.read_bytes()
        if path.suffix in BINARY:
            return data
        if path.suffix == ".json":
            before = json.loads(data)
            after = self.value(before)
            return data if after == before else _dumped(after)
        if path.suffix == ".jsonl":
            return b"".join(self._line(line) for line in data.splitlines(keepends=True))
        text = text_of(path)
        after = self.text(text)
        if after == text:
            return data
        raw = after.encode("utf-8", "surrogateescape")
        return gzip.compress(raw, 6, mtime=0) if path.suffix == ".gz" else raw

    def _line(self, line: bytes) -> bytes:
        if not line.strip():
            return line
        before = json.loads(line)
        after = self.value(before)
        return line if after == before else json.dumps(after, ensure_ascii=False).encode() + b"\n"

    def table(self) -> bytes:
        """replacements.csv: what was put in how many places; never what had been there."""
        out = io.StringIO()
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(("kind", "replacement", "places", "files"))
        for key in sorted(self.places):
            rows.writerow((*key, self.places[key], len(self.files[key])))
        return out.getvalue().encode()

    def lines(self) -> list[str]:
        """For whoever shares, before they send anything: every replacement with what had been there."""
        r = self.replacements
        was: defaultdict[Key, list[str]] = defaultdict(list)
        for kind, table in (
            ("home", r.homes),
            ("host", r.hosts),
            ("user", r.users),
            ("address", r.addresses),
        ):
            for old, new in table.items():
                was[kind, new].append(old)
        out = []
        for key in sorted(self.places):
            kind, new = key
            old = " or ".join(was[key]) or ("(not shown)" if kind == "secret" else "an address")
            out.append(
                f"{kind}: {old} -> {new}, {counted(self.places[key], 'place')} in"
                f" {counted(len(self.files[key]), 'file')}"
            )
        out += [f"kept: {k} is also a name in the study" for k in r.kept]
        return out


def _is_log(name: str) -> bool:
    """Whether a text is the name of NCCL's log, nccl.<host>.<pid>.log."""
    return name.startswith("nccl.") and name.endswith(".log")


def _any_of(kind: str, table: Mapping[str, str]) -> re.Pattern[str]:
    alternatives = "|".join(map(re.escape, table))
    match kind:
        case "secret":
            return re.compile(alternatives)
        case "home":
            # A word may end before the slash: file:///home/..., /mnt/home/...; but /root is also a word.
            others = "|".join(re.escape(n) for n in table if n != "/root") or "(?!)"
            root = f"|{names.ROOT_HOME.pattern}" if "/root" in table else ""
            return re.compile(rf"(?:{others})(?![A-Za-z0-9_-]){root}")
        case _:
            return re.compile(rf"(?<![A-Za-z0-9])(?:{alternatives})(?![A-Za-z0-9])")


def _dumped(value: Any) -> bytes:
    """As `files.write_json` writes it."""
    return (json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()
