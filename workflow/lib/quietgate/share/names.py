"""Who and where: the user names, hosts and addresses that results give away, found before they are replaced.

Numbers are given in alphabetical order of what was found, so that the same results always give the same
archive, whoever shares them.
"""

from __future__ import annotations

import getpass
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quietgate.share import secrets

# Accounts that name nobody; their home folders are replaced all the same.
GENERIC_USERS = frozenset(
    {
        "root", "user", "users", "ubuntu", "debian", "admin", "nobody", "docker", "ec2-user", "centos",
        "fedora", "runner", "jovyan", "app", "node", "test", "guest", "shared", "public", "sglang",
    }
)  # fmt: skip
# Hosts that name nowhere, and words that a log could not do without.
GENERIC_HOSTS = frozenset({"localhost", "local", "host", "server", "none", "null", "node", "docker"})
_GENERIC_DOMAINS = frozenset(
    {"local", "localdomain", "internal", "lan", "cluster.local", "svc.cluster.local"}
)

HOME = re.compile(r"/(?:home|Users)/(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)")
# `/root` as a folder, neither part of a longer word nor of another path.
ROOT_HOME = re.compile(r"(?<![A-Za-z0-9_.~*/-])/root(?![A-Za-z0-9_-])")
EMAIL = re.compile(r"(?<![A-Za-z0-9._+-])[A-Za-z0-9._+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}")
# A bare dotted number may be a version; one with a port, or in NCCL's brackets, is an address.
_ADDRESS = re.compile(r"(?<![0-9A-Za-z.])((?:[0-9]{1,3}\.){3}[0-9]{1,3})(?=:[0-9]{2,5}(?![0-9.])|<[0-9]+>)")
_NCCL_LINE = re.compile(r"^(?:.*\s)?([A-Za-z0-9][A-Za-z0-9._-]*):\d+:\d+ \[\d+\] NCCL ", re.MULTILINE)
_NCCL_FILE = re.compile(r"nccl\.(?P<host>.+)\.\d+\.log")
_HOST_FIELD = re.compile(r"\"(?:host_?name|HOSTNAME)\"\s*:\s*\"([^\"]+)\"")
_USER_FIELD = re.compile(r"\"(?:USER|LOGNAME|user_?name)\"\s*:\s*\"([^\"]+)\"")


@dataclass
class Found:
    """What was found so far, as it stands in the results."""

    secrets: set[str] = field(default_factory=set)
    homes: set[str] = field(default_factory=set)
    users: set[str] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    addresses: set[str] = field(default_factory=set)

    def look_for(self) -> tuple[str | None, str | None, str | None]:
        """User, home and host of whoever shares: replaced too, if they occur."""
        try:
            user: str | None = getpass.getuser()
        except (OSError, KeyError):
            user = None
        home = str(Path.home())
        return user, home if home.count("/") > 1 else None, platform.node() or None

    def read_text(self, text: str, name: str) -> None:
        """Collect from the text of the file `name`."""
        self.secrets.update(secrets.assigned(text))
        for found in HOME.finditer(text):
            self.homes.add(found[0].rstrip("."))
            self.users.add(found["user"].rstrip("."))
        if ROOT_HOME.search(text):
            self.homes.add("/root")
        self.users.update(_USER_FIELD.findall(text))
        self.hosts.update(_HOST_FIELD.findall(text))
        for address in _ADDRESS.findall(text):
            if not address.startswith(("127.", "0.0.0.0")):
                self.addresses.add(address)
        if name.endswith(".log"):
            self.hosts.update(_NCCL_LINE.findall(text))
        user, home, host = self.look_for()
        if user and user not in GENERIC_USERS and word(user).search(text):
            self.users.add(user)
        if home and home in text:
            self.homes.add(home)
        if host and word(host).search(text):
            self.hosts.add(host)

    def read_json(self, value: Any) -> None:
        """Collect what only the structure of a record tells."""
        self.secrets.update(secrets.held(value))
        if isinstance(value, dict):
            host = value.get("host")
            if isinstance(host, dict) and isinstance(host.get("name"), str):
                self.hosts.add(host["name"])

    def read_name(self, name: str) -> None:
        """Collect from a file's name: NCCL puts the host into that of its log."""
        found = _NCCL_FILE.fullmatch(name.rsplit("/", 1)[-1])
        if found:
            self.hosts.add(found["host"])


@dataclass(frozen=True)
class Replacements:
    """What stands for what, longest first, so that a name inside another is not cut out of it."""

    secrets: tuple[str, ...]
    homes: dict[str, str]
    users: dict[str, str]
    hosts: dict[str, str]
    addresses: dict[str, str]
    kept: tuple[str, ...] = ()


def number(found: Found, identifiers: Iterable[str]) -> Replacements:
    """Give every name its replacement.

    Args:
        identifiers: names of the study (cells, profiles, axes): a user or host of the same name stays, and
            is listed in `kept`.
    """
    own = {i.casefold() for i in identifiers}
    taken = {u for u in found.users if re.fullmatch(r"user\d+", u)}
    named = sorted(u for u in found.users | {_owner(h) for h in found.homes} if u and u not in taken)
    free = (f"user{n}" for n in range(1, len(named) + len(taken) + 1) if f"user{n}" not in taken)
    users = dict(zip(named, free, strict=False))
    homes = {h: f"/home/{users[_owner(h)]}" for h in sorted(found.homes) if _owner(h) in users}
    hosts, kept = _hosts(found.hosts)
    plain = {u: r for u, r in users.items() if u not in GENERIC_USERS and len(u) > 2}
    clashing = {n for n in [*plain, *hosts] if n.casefold() in own}
    return Replacements(
        secrets=_longest_first(found.secrets),
        homes={h: homes[h] for h in _longest_first(homes)},
        users={u: plain[u] for u in _longest_first(plain) if u not in clashing},
        hosts={h: hosts[h] for h in _longest_first(hosts) if h not in clashing},
        addresses={a: f"address{n}" for n, a in enumerate(sorted(found.addresses - set(hosts)), start=1)},
        kept=tuple(sorted({*kept, *clashing})),
    )


def _owner(home: str) -> str:
    return home.rstrip("/").rsplit("/", 1)[-1]


def _longest_first(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda n: (-len(n), n)))


def _hosts(found: set[str]) -> tuple[dict[str, str], list[str]]:
    """Hosts and their domains; a host's short and long name are one host."""
    out: dict[str, str] = {}
    kept: list[str] = []
    shorts: dict[str, str] = {}
    domains: dict[str, str] = {}
    for name in sorted(found):
        if re.fullmatch(r"(?:host|address)\d+", name) or re.fullmatch(r"[0-9.]+", name):
            continue
        short, _, domain = name.partition(".")
        if short.casefold() in GENERIC_HOSTS or len(short) < 2:
            kept.append(name)
            continue
        shorts.setdefault(short, f"host{len(shorts) + 1}")
        out[name] = out[short] = shorts[short]
        if "." in domain and domain.casefold() not in _GENERIC_DOMAINS:
            domains.setdefault(domain, f"domain{len(domains) + 1}")
    return out | domains, [k for k in kept if k.casefold() not in GENERIC_HOSTS]


def word(name: str) -> re.Pattern[str]:
    """`name` standing alone between other characters than letters and digits."""
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])")
