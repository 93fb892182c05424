"""A server's log, SGLang 0.3 to 0.5.23, of any size: ready, failed, how fast, how often the draft was right.

Read once, in blocks, in flat memory. Numbers that a log does not hold are null.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quietgate.errors import BadInput
from quietgate.inspect import recognise
from quietgate.inspect.lines import BLOCK_BYTES, Block, blocks
from quietgate.inspect.log import arguments
from quietgate.inspect.log.decode import Decode
from quietgate.inspect.log.prefill import Prefill
from quietgate.inspect.log.server import Server, as_json
from quietgate.wording import counted

__all__ = ["read"]

_MOST_SERVERS = 1000


def read(path: Path) -> dict[str, Any]:
    """One object about a server's log; of several servers in it, the last decides ready and failure.

    Keys: ready, ready_line, decode, prefill, server_args, failure, boots, and more (docs of each in the
    summaries of `Decode`, `Prefill` and `Server`). BadInput on a folder, a binary, an empty or
    cut file, and on text of another kind.
    """
    path = Path(path)
    decode, prefill = Decode(), Prefill()
    servers: list[dict[str, Any]] = []
    boots = lines = 0
    blank = True
    head = b""
    server = Server(1)
    for block in blocks(path, "server log"):
        if len(head) < BLOCK_BYTES:
            head += block.text
        blank = blank and not block.text.strip()
        for part, boot in _at_boots(block):
            if boot and server.evident and not _same_boot(server, boot):
                _close(server, decode, prefill, servers)
                boots += 1
                server = Server(part.first)
            server.see(part)
        lines = block.number(block.count - 1)
    _close(server, decode, prefill, servers)
    boots += server.evident
    if blank:
        raise BadInput(f"{path}: nothing but blank lines; name a server's log")
    if not recognise.is_log(head, len(head) < BLOCK_BYTES, server.spoke, server.evident):
        raise BadInput(f"{path}: no line of an SGLang log in it; name the file with the server's output")
    return _told(path, server, decode, prefill, servers, boots, lines)


def _at_boots(block: Block) -> Iterator[tuple[Block, bytes | None]]:
    """The block, cut before every line that carries a server's arguments, and that line where it has one."""
    # Most lines have no "=" at all, which is found out ten times as fast.
    if b"=" not in block.text or b"server_args=" not in block.text:
        yield block, None
        return
    lines = block.lines
    cuts = [i for i, line in enumerate(lines) if arguments.starts(line)]
    for start, end in itertools.pairwise(sorted({0, *cuts, len(lines)})):
        numbers = None if block.numbers is None else block.numbers[start:end]
        yield (
            Block.of(lines[start:end], block.number(start), numbers),
            lines[start] if start in cuts else None,
        )


def _same_boot(server: Server, line: bytes) -> bool:
    """Does this line belong to another node of the server that is starting?"""
    if not server.started:
        return server.ready_line is None and not server.decode.lines and not server.prefill.lines
    parsed = arguments.parse(line.decode("utf-8", "replace"))
    return server.ready_line is None and parsed is not None and bool(parsed.get("node_rank"))


def _close(server: Server, decode: Decode, prefill: Prefill, servers: list[dict[str, Any]]) -> None:
    server.close()
    decode.merge(server.decode)
    prefill.merge(server.prefill)
    if server.evident and len(servers) < _MOST_SERVERS:
        servers.append(server.summary())


def _told(
    path: Path,
    server: Server,
    decode: Decode,
    prefill: Prefill,
    servers: list[dict[str, Any]],
    boots: int,
    lines: int,
) -> dict[str, Any]:
    failure, stopped = server.failure(), server.stopped
    decoded = decode.summary()
    notes = decode.notes()
    if not server.started and server.ready_lines > boots:
        boots = server.ready_lines
        notes.append(f"{boots} servers became ready, and no line says where one ends and the next begins")
    if boots == 1:
        decoded["server_throughput_mean"] = server.decode.server_throughput
    problems = decode.problems(server.draft_tokens)
    if failure is not None and decode.lines:
        problems.append(
            f"the server failed ({failure.failure_class}): its numbers are those of a partial run"
        )
    if server.arguments_cut and server.arguments is None:
        notes.append("the line of the server's arguments is cut, so server_args is null")
    if server.health_failures and failure is None:
        notes.append(f"{counted(server.health_failures, 'health check')} failed, and the server went on")
    retractions = server.retractions()
    if retractions["events"]:
        problems.append(
            f"the KV pool ran full {counted(retractions['events'], 'time')} (requests were retracted): "
            "throughput is not that of an unsaturated server"
        )
    return {
        "file": str(path),
        "lines": lines,
        "ready": server.ready_line is not None,
        "ready_line": server.ready_line,
        "seconds_to_ready": server.seconds_to_ready(),
        "last_stage": server.watch.stage,
        "decode": decoded,
        "prefill": prefill.summary(),
        "server_args": server.arguments,
        "sglang_version": server.version,
        "nccl_versions": server.nccl_versions,
        "failure": as_json(failure),
        "stopped": as_json(stopped),
        "boots": boots,
        "servers": servers if boots > 1 else [],
        "http_statuses": server.http_statuses(),
        "retractions": retractions,
        "plausible": not problems,
        "problems": problems,
        "notes": notes,
    }
