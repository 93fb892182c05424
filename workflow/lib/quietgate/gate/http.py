"""Stage 3: the server says that it is ready, by a signal that means it in this release.

What an endpoint means has changed: /health answered 200 as soon as HTTP was up through 0.4.10, and
generates one token since 0.5.2; environment variables turn that off again. /model_info and /v1/models
are there before the warm-up. So three signals are watched, and the first counts: the log's "ready to
roll" line (all releases), /ready (from 0.5.20; 200 only after the warm-up), and /health_generate, which
generates in every release. None of them proves that decode works: that is stage 7.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

import requests

from quietgate.gate import direct
from quietgate.gate.logtail import LogTail
from quietgate.gate.stage import Evidence, Proof, Subject
from quietgate.gate.waiting import wait_while_working

READY_LINE = "The server is fired up and ready to roll"
# A probe that hangs must not hold the gate; /health_generate itself gives up after 20 s.
_READY_TIMEOUT_S = 2.0
_GENERATE_TIMEOUT_S = 25.0
_GENERATE_PAUSE_S = 0.5
# The log's line is looked for at every poll; a probe leaves a line in the server's log.
_READY_PAUSE_S = 0.25


def prove(subject: Subject) -> Proof:
    """Wait for the first signal of readiness; every probe has its own time-out, no proxy is asked."""
    began = time.monotonic()
    log = LogTail(subject.live.log)
    signals = _Signals(subject)

    def ready() -> bool:
        if READY_LINE in log.new_text():
            signals.by = "log"
            return True
        return signals.look()

    with ThreadPoolExecutor(1, "health") as pool:
        signals.pool = pool
        try:
            wait_while_working(subject, ready, subject.plan.ready_s)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            signals.http.close()
    return Proof(
        {
            "signal": signals.by,
            "seconds_after_port": round(time.monotonic() - began, 3),
            "ready_endpoint": signals.ready_status,
            "health_generate": signals.generate_status,
            "health_means": _meaning(subject.plan.env[0] if subject.plan.env else {}),
        }
    )


class _Signals:
    """The two HTTP signals; the slow one is asked in a thread of its own."""

    def __init__(self, subject: Subject):
        self._subject = subject
        self.http = direct.session()
        self.by: str | None = None
        self.ready_status: int | str | None = None
        self.generate_status: int | str | None = None
        self.pool: ThreadPoolExecutor
        self._asked: Future[int | str] | None = None
        self._asked_at = 0.0
        self._looked_at = 0.0

    def look(self) -> bool:
        """Whether an endpoint says that the server is ready."""
        if self.ready_status != 404 and time.monotonic() - self._looked_at > _READY_PAUSE_S:
            self._looked_at = time.monotonic()
            self.ready_status = _status(self._subject.http, self._subject.url("/ready"), _READY_TIMEOUT_S)
            if self.ready_status == 200:
                self.by = "/ready"
                return True
        return self._generates()

    def _generates(self) -> bool:
        if self._asked is None:
            # A release with /ready is asked there: a probe is a request in the server's queue.
            if self.ready_status == 404 and time.monotonic() - self._asked_at > _GENERATE_PAUSE_S:
                url = self._subject.url("/health_generate")
                self._asked = self.pool.submit(_status, self.http, url, _GENERATE_TIMEOUT_S)
                self._asked_at = time.monotonic()
            return False
        if not self._asked.done():
            return False
        self.generate_status = self._asked.result()
        self._asked = None
        if self.generate_status == 200:
            self.by = "/health_generate"
            return True
        return False


def _status(http: requests.Session, url: str, timeout_s: float) -> int | str:
    """The status code of a GET, or the name of what went wrong."""
    try:
        return http.get(url, timeout=timeout_s).status_code
    except requests.RequestException as e:
        return type(e).__name__


def _meaning(env: Evidence) -> str:
    """What a 200 of /health would have meant, given the launch's environment."""
    if str(env.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "")).lower() in ("0", "false"):
        return "constant after start-up: SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION is off"
    if str(env.get("SGLANG_DIAG_BYPASS_HEALTH_GENERATE", "")).lower() in ("1", "true"):
        return "constant after start-up: SGLANG_DIAG_BYPASS_HEALTH_GENERATE is on"
    return "from 0.5.2 one generated token, before that only that HTTP is up"
