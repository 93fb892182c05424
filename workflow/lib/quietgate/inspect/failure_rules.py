"""The rules by which a line of a log is read, the lines worth reading, and the signs that are no causes.

Most rules are a plain text that must be in the line: a log of gigabytes is searched for a few coarse
needles first, then a line's rules are tried by their texts, and only then is an expression run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from quietgate.inspect.failure_causes_inside import INSIDE
from quietgate.inspect.failure_causes_outside import OUTSIDE
from quietgate.inspect.failure_ranks import CONSEQUENCE, GENERIC, ROOT, SYMPTOM, WEAK, Table

# What a cause looks like where nothing names it, and what every death leaves behind.
_SIGNS: Table = (
    ("watchdog", SYMPTOM, [(b"atchdog timeout", rb"atchdog timeout \(")]),
    ("never_ready", SYMPTOM, [b"Initialization failed. warmup error"]),
    # What torch says last of a collective, whether it timed out or a peer went away.
    ("nccl_timeout", SYMPTOM, [b"NCCL operations have failed or timed out"]),
    (
        "unsupported",
        SYMPTOM,
        [
            (b": No module named", rb"python\S*: No module named"),
        ],
    ),
    ("hang", SYMPTOM, [(b"<defunct>", rb"sglang\S* <defunct>")]),
    # A rank misses another one, which may have died of a cause that is logged elsewhere.
    (
        "nccl_init",
        GENERIC,
        [
            b"ncclRemoteError",
            (b"remote process exited", rb"NCCL error"),
            (b"gloo/", rb"rror: .*\bgloo/.*(?:closed|reset) by peer"),
        ],
    ),
    # Native code that ends by itself, with a word on why.
    ("unknown", ROOT, [(b"Assertion ", rb":\d+: .*Assertion [`'].*failed")]),
    (
        "unknown",
        SYMPTOM,
        [
            b"Failed: Cuda error",
            (b"what():", rb"^\W*what\(\): +\S"),
            (b"free", rb"(?:^|\s)(?:free\(\): invalid|double free or corruption)"),
        ],
    ),
    # Of a cause that stands elsewhere, if anywhere.
    (
        "unknown",
        GENERIC,
        [
            b"terminate called",
            b"Fatal Python error: Aborted",
            b"Aborted (core dumped)",
        ],
    ),
    (
        "killed",
        CONSEQUENCE,
        [
            (b"Killed", rb"(?:^|\s)Killed\s*$|\bKilled\s+\S*python|Killed process"),
            (b"SIGKILL", rb"^(?!.*(?:If exit code is|causes|sending|still alive)).*SIGKILL"),
            (b"xit", rb"[Ee]xit [Cc]ode:?\s+(?:-9|137)\b|exited with code 137\b"),
            (b"status=9/KILL", rb"code=killed"),
            b"Child process unexpectedly failed with exitcode=",
            (b"crashed with exit code", rb"Subprocess \S+"),
            (b" CANCELLED AT ", rb"slurmstepd: error: \*\*\* (?:JOB|STEP) "),
            b"its worker process has died",  # Ray
            (b"ActorDiedError", rb"(?:^|[\s.])ActorDiedError: "),
            b"A worker died or was killed while",
            b"Received sigquit from a child",
            b"SIGQUIT received",
        ],
    ),
    ("unknown", GENERIC, [b"scheduler died during initialization"]),
    # Under load a false alarm in some versions.
    ("hang", WEAK, [b"Health check failed. Server couldn't get a response"]),
    (
        "context_too_long",
        WEAK,
        [
            (b"exceeds", rb"[Ii]nput (?:length|token)\b.*exceeds|exceeds the (?:maximum|model's)"),
            (b"onger than the", rb"input .*longer than the model's context"),
        ],
    ),
    (
        "hang",
        WEAK,
        [
            (
                b"ang",
                rb"^(?!.*can lead to ).*\b(?:NCCL|all_reduce|server|requests?)\b"
                rb".*\b(?:[Hh]angs?|[Hh]anging|hung)\b",
            )
        ],
    ),
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A line that contains `text`, and matches `pattern` where there is one, means `failure_class`."""

    failure_class: str
    rank: int
    text: bytes
    pattern: re.Pattern[bytes] | None


_RULES = tuple(
    Rule(failure_class, rank, entry, None)
    if isinstance(entry, bytes)
    else Rule(failure_class, rank, entry[0], re.compile(entry[1]))
    for failure_class, rank, entries in (*OUTSIDE, *INSIDE, *_SIGNS)
    for entry in entries
)


def rule_of(line: bytes) -> Rule | None:
    """The rule that decides what this line tells, or None."""
    for rule in _RULES:
        if rule.text in line and (rule.pattern is None or rule.pattern.search(line)):
            return rule
    return None


# Only lines with one of these are looked at. Each is searched in all text, so there are few: "rror" covers
# every rule whose line is an exception's.
NEEDLES = (
    b"rror",
    b"emory",
    b"xception",
    b"atchdog",
    b"SIG",
    b"sigquit",
    b"xit code",
    b"xit Code",
    b"code=",
    b"exited with code",
    b"Killed",
    b"OOM",
    b"oom-kill",
    b"Assertion",
    b"Interrupt",
    b"Timeout:",
    b" timed out",
    b"timing out",
    b"times out",
    b"check failed",
    b"non-zero status",
    b"hutting down",
    b"fallen off the bus",
    b"Xid",
    b"o space left",
    b"bad_alloc",
    b" fatal  ",
    b"core dumped",
    b"free",
    b"/dev/shm",
    b"in use",
    b"set_embed",
    b"hot_token_id",
    b"Repository Not Found",
    b"is restricted",
    b"gated repo",
    b"graph failed",
    b"raph capture",
    b"NCCL WARN",
    b"- Init ",
    b"Destroy COMPLETE",
    b"nitialization failed",
    b"egmentation fault",
    b": No module named",
    b"<defunct>",
    b"leaked",
    b"xceeds the",
    b" hang",
    b"Hang",
    b"Traceback",
)
# While a server starts, these as well: the stages it goes through.
STAGES = (
    b"nit torch",
    b"nit nccl",
    b"oad weight",
    b"KV Cache is",
    b"apture",
    b"tartup complete",
    b"vicorn running",
    b"fired up",
)
