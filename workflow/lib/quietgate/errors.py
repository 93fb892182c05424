"""The errors that a person sees: one line each, saying what is wrong, where, and what to do."""

from __future__ import annotations


class BadInput(Exception):
    """Something the user gave is wrong (a config key, a file, an archive): exit status 2.

    The message is one line: place, what is wrong, what is allowed or what to do.
    """


class BadConfig(BadInput):
    """A study's config is wrong. Carries every problem found, one line each."""

    def __init__(self, problems: list[str]):
        self.problems = problems
        super().__init__("\n".join(problems))


class CellFailed(Exception):
    """A cell cannot be measured; becomes the failure of its record, not the end of the study.

    Attributes:
        failure_class: one of `quietgate.inspect.failures.CLASSES`, `invalid_pass` or `wrong_sums`.
        reason: one line for a person.
        evidence: the lines or values the verdict rests on.
    """

    def __init__(self, failure_class: str, reason: str, evidence: list[str] | None = None):
        self.failure_class = failure_class
        self.reason = reason
        self.evidence = evidence or []
        super().__init__(f"{failure_class}: {reason}")


class Interrupted(Exception):
    """The job was told to stop (signal, owner gone): no record is written, a resume repeats it."""
