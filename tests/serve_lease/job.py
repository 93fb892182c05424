"""A job: `job.py SPEC.json start|release|hold HOW`; says what happens as JSON lines on stdout.

HOW is what the job does while it holds the server: end (at once), sleep, recv, asyncio, swallow,
deaf, thread, fail. Exit status 0 done, 3 CellFailed, 4 Interrupted, as a step would tell apart.
"""

import asyncio
import contextlib
import json
import socket
import sys
import threading
import time
from pathlib import Path

from quietgate.errors import CellFailed, Interrupted
from quietgate.serve import lease


def say(**words):
    print(json.dumps(words), flush=True)


def connected(live):
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", live.port), timeout=None)
        time.sleep(0.01)


def recv(live):
    with connected(live) as connection:
        say(holding=True)
        connection.recv(1)
        raise ConnectionResetError("the server hung up")


async def many():
    async def one():
        await asyncio.sleep(100)

    say(holding=True)
    # A client that takes every error of a request for that request's result.
    await asyncio.gather(*(one() for _ in range(4)), return_exceptions=True)
    await asyncio.sleep(100)


def swallow():
    say(holding=True)
    while True:
        try:
            time.sleep(100)
        except Exception as e:
            say(swallowed=repr(e))


def deaf():
    say(holding=True)
    with contextlib.suppress(BaseException):
        time.sleep(100)
    time.sleep(100)


def hold(live, how):
    with lease.hold(live, "benchmark") as held:
        if how == "recv":
            recv(live)
        elif how == "asyncio":
            asyncio.run(many())
        elif how == "swallow":
            swallow()
        elif how == "deaf":
            deaf()
        elif how == "sleep":
            say(holding=True)
            time.sleep(100)
        elif how == "fail":
            raise ValueError("a failure inside")
        elif how == "thread":
            say(holding=True)
            while True:
                held.check()
                time.sleep(0.02)
    say(held=True)


def main(spec_path, verb, how="end"):
    spec = lease.LaunchSpec.from_json(json.loads(Path(spec_path).read_text()))
    try:
        if verb == "start":
            live = lease.start(spec)
            say(started=live.instance)
        elif verb == "release":
            say(released=lease.release(spec.live_dir, spec.instances_dir, "released"))
        elif verb == "hold":
            hold(lease.live(spec) or lease.start(spec), how)
    except CellFailed as e:
        say(raised="CellFailed", failure_class=e.failure_class, reason=e.reason, evidence=e.evidence)
        return 3
    except Interrupted as e:
        say(raised="Interrupted", reason=str(e))
        return 4
    return 0


if __name__ == "__main__":
    if sys.argv[2:] == ["hold", "thread"]:
        status = []
        thread = threading.Thread(target=lambda: status.append(main(*sys.argv[1:])))
        thread.start()
        thread.join()
        sys.exit(status[0])
    sys.exit(main(*sys.argv[1:]))
