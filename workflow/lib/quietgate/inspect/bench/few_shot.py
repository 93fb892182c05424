"""What SGLang's accuracy scripts (few-shot gsm8k and the like) print of their speed."""

from __future__ import annotations

import re
from typing import Any

_SCORE = re.compile(r"(?:Accuracy|Score): +(\d+(?:\.\d+)?)$")
_TOOK = re.compile(r"(?:Total )?[Ll]atency: +(\d+(?:\.\d+)?) s$")
_OUTPUT = re.compile(r"Output throughput: +(\d+(?:\.\d+)?) token/s$")


def printed(lines: list[str]) -> list[dict[str, Any]]:
    """A result per printed output throughput, with the score and the time printed before it."""
    results: list[dict[str, Any]] = []
    before: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        if score := _SCORE.match(line):
            before = {"line": number, "accuracy": float(score[1])}
        elif took := _TOOK.match(line):
            before["duration_s"] = float(took[1])
        elif output := _OUTPUT.match(line):
            results.append(
                {"line": number, "complete": True, **before, "output_tokens_per_s": float(output[1])}
            )
            before = {}
    return results
