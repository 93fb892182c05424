"""How much a line explains of a failure.

ROOT names a cause; VAGUE names one in general terms, and a better line may stand elsewhere; SYMPTOM is what a
cause looks like when nothing better is logged; GENERIC is an exception, or an abort, that says nothing known;
CONSEQUENCE is what every death leaves behind; WEAK is a hint in prose or in a server that may well live on;
REQUEST is what went wrong with one request, which its server survives.
"""

from __future__ import annotations

ROOT, VAGUE, SYMPTOM, GENERIC, CONSEQUENCE, WEAK, REQUEST = range(7)

# class, rank, [text or (text, expression), ...]
Table = tuple[tuple[str, int, list[bytes | tuple[bytes, bytes]]], ...]

# An exception's type at the start of the message, behind whatever a shipper wrote.
RAISED = rb"(?:^|[\s\]:|])(?:\w+\.)*[A-Z]\w*(?:Error|Exception): .*"
