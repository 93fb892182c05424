"""A server of a few lines that misbehaves on demand. Run with `python -S`; standard library only.

    stub_server.py --port N --seen FILE [--ignore-term] [--stray TAG] [--escape TAG] [--fork]
                   [--exit-after S --status N --words TEXT] [--slow-end S]

--seen FILE    write what was given to this process (argv, environment, pid) there
--stray TAG    leave a grandchild in a session of its own, TERM ignored, environment and files gone
--escape TAG   the same, but with its environment
--fork         a child in the same session that a parent's death would leave behind
"""

import json
import os
import signal
import socket
import sys
import time


def option(name, default=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def grandchild(tag, environment):
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.closerange(0, 64)
    os.execve(sys.executable, [sys.executable, "-S", __file__, "--linger", tag], environment)


if "--linger" in sys.argv:
    while True:
        time.sleep(100)
if "--ignore-term" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if slow := option("--slow-end"):
    signal.signal(signal.SIGTERM, lambda n, f: (time.sleep(float(slow)), os._exit(0)))
if tag := option("--stray"):
    grandchild(tag, {})
if tag := option("--escape"):
    grandchild(tag, dict(os.environ))
if "--fork" in sys.argv and not os.fork():
    while True:
        time.sleep(100)
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(option("--port"))))
listener.listen()
if seen := option("--seen"):
    with open(seen + ".tmp", "w") as f:  # noqa: PTH123
        json.dump({"argv": sys.argv, "env": dict(os.environ), "pid": os.getpid()}, f)
    os.replace(seen + ".tmp", seen)  # noqa: PTH105
print("stub server is up", flush=True)
if seconds := option("--exit-after"):
    time.sleep(float(seconds))
    print(
        option("--words", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        flush=True,
    )
    os._exit(int(option("--status", "0")))
connections = []
while True:
    connections.append(listener.accept())  # never answered: whoever asks stays blocked
