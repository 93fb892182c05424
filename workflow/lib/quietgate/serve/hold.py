"""Using a live server from a job: the job learns at once that the server is lost or it must stop.

`with hold(server, "benchmark") as held:` registers the job with the server's supervisor (which
ends the server if the job vanishes) and watches supervisor, owner and signals from a thread. When
the server is lost or the job is told to stop, the main thread is interrupted wherever it is: a
blocked call by an exception out of a signal handler, a running asyncio loop by cancelling its
tasks. The `with` statement turns either into `CellFailed` or `Interrupted`. Code in other threads
calls `held.check()`.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from quietgate.errors import CellFailed, Interrupted
from quietgate.files import read_json
from quietgate.serve.locks import try_lock
from quietgate.serve.ownership import owner, owner_alive
from quietgate.serve.processes import alive, myself
from quietgate.serve.state import Live, State, exit_file, put_json
from quietgate.serve.strays import BOTH_KILLED, bury, supervised

POLL_S = 0.05
WAKE = signal.SIGUSR1
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
WAKE_AFTER_S = 0.15
"""So long is code that polls `check` given to end by itself, in better order, before it is woken."""
REPEAT_S = 1.0
"""An interruption that had no effect (code that swallows everything) is repeated so often."""

_numbers = itertools.count()


class _Stop(BaseException):
    """Raised in the main thread to leave a `with hold(...)`; not an Exception, so that retry loops
    let it pass. Never seen outside."""


class Hold:
    """A job's use of a live server; see the module."""

    def __init__(self, server: Live, who: str):
        self.server, self.who = server, who
        self._state = State(server.live_dir)
        self._consumer = self._state.consumer(server.instance, f"{os.getpid()}-{next(_numbers)}")
        self._outcome: Exception | None = None
        self._told: str | None = None
        self._closing = threading.Event()
        self._deliveries = 0
        self._handlers: dict[signal.Signals, Any] = {}
        self._owner = owner()
        self._thread = threading.Thread(target=self._watch, name=f"hold-{who}", daemon=True)

    def __enter__(self) -> Hold:
        put_json(self._consumer, myself().as_json() | {"who": self.who})
        try:
            self._look()
            if self._outcome is not None:
                raise self._final()
            if threading.current_thread() is threading.main_thread():
                for number in (WAKE, *STOP_SIGNALS):
                    if signal.getsignal(number) is not signal.SIG_IGN or number == WAKE:
                        self._handlers[number] = signal.signal(number, self._on_signal)
            self._thread.start()
        except BaseException as e:
            self._closing.set()
            self._restore_handlers()
            self._consumer.unlink(missing_ok=True)
            if isinstance(e, _Stop):
                raise self._final() from None
            raise
        return self

    def check(self) -> None:
        """Raise CellFailed when the server is lost, Interrupted when the job must stop."""
        if self._outcome is None:
            self._look()
        if self._outcome is not None:
            raise self._final()

    # ---- watching

    def _look(self) -> None:
        """See whether the server is still this job's to use."""
        if self._told:
            self._outcome = Interrupted(f"{self.who}: told to stop by {self._told}")
            return
        if not owner_alive(self._owner):
            self._outcome = Interrupted(f"{self.who}: the run that owns this job is gone")
            return
        lease = read_json(self._state.lease)
        if not isinstance(lease, dict) or lease["instance"] != self.server.instance:
            self._outcome = CellFailed("killed", "the server's state is gone")
        elif lease["ended"] is not None:
            self._outcome = outcome_of(lease)
        elif not supervised(lease):
            self._outcome = CellFailed("killed", BOTH_KILLED)

    def _watch(self) -> None:
        main = threading.main_thread().ident
        while not self._closing.wait(POLL_S):
            if self._outcome is None or self._told:
                self._look()
            if self._outcome is None or not self._handlers or main is None:
                continue
            pause = REPEAT_S if self._deliveries else WAKE_AFTER_S
            if self._closing.wait(pause):
                return
            signal.pthread_kill(main, WAKE)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number != WAKE:
            self._told = signal.Signals(number).name
            self._look()
        if self._closing.is_set() or self._outcome is None:
            return
        self._deliveries += 1
        # A loop that is not cancelled in time is one that blocks, or that swallows cancellation.
        if self._deliveries > 1 or not _cancel_running_loop():
            raise _Stop

    # ---- leaving

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        try:
            self._leave(error)
        finally:
            self._thread.join(5)
            self._restore_handlers()
        if error is None and self._told:  # told between the last look and here
            raise Interrupted(f"{self.who}: told to stop by {self._told}")

    def _leave(self, error: BaseException | None) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._told = self._told or "SIGINT"
        if error is not None and self._outcome is None:
            self._blame(error)
        else:
            self._look()
        if error is None and self._outcome is None:
            self._consumer.unlink(missing_ok=True)
            return
        cause = self._outcome or error
        request_release(
            self._state,
            self.server.instance,
            f"{self.who} failed: {cause}"[:500],
            interrupted=isinstance(cause, Interrupted),
        )
        self._consumer.unlink(missing_ok=True)
        record = exit_file(self.server.instance_dir.parent, self.server.instance)
        wait_until_gone(self._state, record, self.server.grace_s + 10)
        if self._outcome is not None:
            internal = error is None or isinstance(error, _Stop)
            raise self._final() from (None if internal else error)

    def _blame(self, error: BaseException) -> None:
        """An error inside, perhaps because the server just died: then that is what happened.

        Connections break before a dying process is dead for others, so there is a short wait.
        """
        deadline = time.monotonic() + (0.3 if isinstance(error, OSError | TimeoutError) else 0.1)
        while self._outcome is None and time.monotonic() < deadline:
            if not all(alive(p) for p in self.server.started):
                deadline = time.monotonic() + 5  # its supervisor is about to say so
            self._look()
            time.sleep(0.01)

    def _final(self) -> Exception:
        """The outcome, with what the log of a lost server says by now."""
        outcome = self._outcome
        assert outcome is not None
        return explained(outcome, self.server.log)

    def _restore_handlers(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._handlers.clear()


def hold(server: Live, who: str) -> Hold:
    """Use a server in a `with` statement; `who` (e.g. "benchmark") names the job in records."""
    return Hold(server, who)


def _cancel_running_loop() -> bool:
    """Cancel every task of the asyncio loop that runs in this thread; False when none does."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    loop = asyncio._get_running_loop()
    if loop is None:
        return False

    def cancel() -> None:
        for task in asyncio.all_tasks(loop):
            task.cancel()

    loop.call_soon_threadsafe(cancel)
    return True


class ServerEnded(CellFailed):
    """A server that ended by itself, with this exit status: its log may say why."""

    def __init__(self, reason: str, returncode: int | None):
        super().__init__("killed", reason)
        self.returncode = returncode


def outcome_of(lease: dict[str, Any]) -> Exception:
    """What an ended lease means to a job that wanted the server."""
    ended = lease["ended"]
    if ended["interrupted"]:
        return Interrupted(ended["reason"])
    if ended["by_itself"]:
        return ServerEnded(ended["reason"], ended["returncode"])
    return CellFailed("killed", ended["reason"])


def explained(outcome: Exception, log: Path) -> Exception:
    """The same outcome with the class, the reason and the lines that the server's logs give."""
    if not isinstance(outcome, CellFailed):
        return outcome
    try:
        lines = log.read_text(errors="replace").splitlines()[-15:]
    except OSError:
        lines = []
    if not isinstance(outcome, ServerEnded):
        return CellFailed("killed", outcome.reason, lines)
    # Imported here, since they are needed by failures only.
    from quietgate.inspect.death import why
    from quietgate.inspect.last_words import last_words

    dead = why(log)
    if dead is not None:
        found = dead.failure
        where = "" if dead.log == log else f"{dead.log.name}, line {found.line}; "
        reason = f"{found.message} ({where}{outcome.reason})"
        told = [found.message, *([dead.own.message] if dead.own else []), *filter(None, [found.advice])]
        return CellFailed(found.failure_class, reason, [*told, *lines])
    code = outcome.returncode
    if code is None or not 0 <= code <= 128:  # by a signal, or by a shell that says so
        return CellFailed("killed", outcome.reason, lines)
    words = last_words(log)
    return CellFailed("unknown", f"{words} ({outcome.reason})" if words else outcome.reason, lines)


def request_release(state: State, instance: str, reason: str, *, interrupted: bool = False) -> None:
    """Ask a server's supervisor to end it; the first reason given stays."""
    path = state.release(instance)
    if not path.exists() and state.folder.is_dir():
        put_json(path, {"reason": reason, "interrupted": interrupted})


def wait_until_gone(state: State, record: Path, timeout_s: float) -> bool:
    """Wait until a launch has no supervisor any more; end what two killed ones left."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if lock := try_lock(state.lock):
            try:
                bury(state)
            finally:
                lock.release()
            return True
        ended = read_json(record)
        if isinstance(ended, dict) and ended["left"]:
            return True  # its supervisor stays with what cannot be killed
        time.sleep(POLL_S / 2)
    return False
