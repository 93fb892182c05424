"""What a file is, told from its beginning, so that a wrong one is refused by name."""

from __future__ import annotations

import ast
import re
import warnings

from quietgate.inspect.prefixes import unwrapped

_JSON = re.compile(rb'\s*(?:\{\s*"|\{\s*\}|\[\s*[\[{"\]])')
_TRACE = re.compile(rb'"traceEvents"\s*:|"ph"\s*:\s*"[A-Za-z]"')
_RESULT = re.compile(
    rb"= (?:Serving|Offline Throughput) Benchmark Result ="
    rb'|^\s*[\[{](?s:.*?)"(?:output_throughput|request_throughput|total_output_tokens'
    rb'|Succeed requests|aggregated_metrics)"\s*:'
)
_METRICS = re.compile(rb"^(?:# (?:HELP|TYPE) [\w:]+ |sglang[:_]\w+[{ ])", re.M)
_SERVER = re.compile(
    rb"server_args=(?:ServerArgs\(|\{)|\] (?:Decode|Prefill) batch[,.]|The server is fired up"
    rb"|Load weight begin"
)
_CODE = re.compile(rb"^(?:import|from|def|async def|class) ", re.M)
# The words of shippers: others write records with a text in them too.
_SHIPPED = re.compile(
    rb'"(?:log|message|msg|textPayload|ts|\w*(?:time|stamp|stream|level|severity)\w*)"\s*:', re.I
)
# A line as a program prints it, whatever it prints: a stamp, a level, an error, a warning, a progress bar.
_OUTPUT = re.compile(
    rb"""^(?:
      [\w.@-]+\s+\|\s | \((?:\w[\w.]*\s)?pid=\d+[^)\n]*\)\s | [\w.-]+\s>>\s | \[rank\d+\]:\s?
    | \[pod/[^\]\s]+\]\s | \{\w+=[^{}\n]*\}\s | \d{13}\s | \d+:\s+ | [A-Za-z](?=[\w.-]*\d)[\w.-]*:\s
    )?(?:
      \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d
    | \[\d\d:\d\d:\d\d
    | [A-Z][a-z]{2}\s+\d+\s\d\d:\d\d:\d\d\s                                         # syslog
    | \[?[DIWEF]\d{3,4}\s\d\d:\d\d:\d\d                                              # torch, glog
    | (?:DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)\b[:\ ]
    | Traceback\ \(most\ recent\ call\ last\):
    | (?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning):
    | usage:\ | [\w./-]+:\ error:\ | \S+:\d+:\s\w*Warning:
    | (?:/\S+|-?(?:ba|da|z)?sh|python[\d.]*|docker|podman|srun|slurmstepd|mpirun|ray|conda|nohup|env|sudo|ssh
        |timeout|numactl|taskset):\s
    | (?:Killed|Terminated|Aborted|Bus\ error|Segmentation\ fault)\b
    | [^\n]{0,80}\d%\|
    | [^\n]{0,200}(?:NCCL\ WARN|(?:Decode|Prefill)\ batch|\bspeculative_\w+=)
    )""",
    re.M | re.X,
)


def kind_of(text: bytes) -> str | None:
    """Which of the inspected kinds a file is that begins with `text`: log, nccl, trace, bench, metrics."""
    if _JSON.match(text) and _TRACE.search(text):
        return "trace"
    if _RESULT.search(text):
        return "bench"
    if _METRICS.match(text.lstrip()):
        return "metrics"
    if _SERVER.search(text):
        return "log"
    if b"NCCL INFO" in text and b"NCCL WARN" not in text:
        return "nccl"
    return None


def is_log(text: bytes, whole: bool, spoke: bool, failed: bool) -> bool:
    """Is a file that begins with this text a server's log? One that died early is, whatever it says.

    Args:
        text: the file's beginning, or all of it where it is `whole`.
        whole: there is no more.
        spoke: it has lines that only a server writes.
        failed: it has a line that tells of a failure; prose may have one.
    """
    if whole and _is_document(text):
        return False
    if spoke:
        return True
    kind = kind_of(text)
    if kind in ("trace", "bench", "metrics") or (_JSON.match(text) and not _is_wrapped(text)):
        return False
    return failed or (kind != "nccl" and (_OUTPUT.search(text) is not None or _is_wrapped(text)))


def _is_wrapped(text: bytes) -> bool:
    """Does it begin with a line that docker or a log shipper wrapped in JSON?"""
    line = text.lstrip().partition(b"\n")[0]
    return unwrapped(line) != line and _SHIPPED.search(line) is not None


def _is_document(text: bytes) -> bool:
    """Is this whole text JSON, or a Python file? No log parses as either."""
    if _is_wrapped(text) or not (_JSON.match(text) or _CODE.search(text)):
        return False
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(text)  # JSON parses as Python too
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True
