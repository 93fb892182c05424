"""The hand-run study's published observations, checked against their own numbers.

They come from single runs whose spread is unknown: reference marks for a figure, never our results
and never the basis of a claim.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from quietgate.errors import BadInput

COLUMNS = ("quantity", "steps", "nccl", "value", "unit", "kind", "note")
KINDS = ("observed", "stated")


@dataclass(frozen=True)
class Derived:
    """A number that follows from the published ones by arithmetic.

    Attributes:
        name: what it is.
        percent: the value by arithmetic.
        stated_percent: what the source says, or None.
        agrees: whether the statement is the arithmetic, rounded to the digits stated; None where
            nothing was stated.
        says: what the statement was, in the source's words; "" where nothing was stated.
        finding: what the numbers say, in one sentence.
        text: finding and, where they disagree, the statement.
    """

    name: str
    percent: float
    stated_percent: float | None
    agrees: bool | None
    says: str
    finding: str
    text: str

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def read_reference(path: Path) -> pd.DataFrame:
    """The reference observations in `path`; BadInput where they are not usable."""
    try:
        frame = pd.read_csv(path, comment="#", keep_default_na=False)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file of reference observations") from None
    except (ValueError, pd.errors.ParserError) as e:
        raise BadInput(f"{path}: not readable as CSV ({e})") from None
    missing = [c for c in COLUMNS if c not in frame.columns]
    if missing:
        raise BadInput(f"{path}: lacks the column {missing[0]}; needed are {', '.join(COLUMNS)}")
    for line, row in enumerate(frame.to_dict("records"), start=1):
        if row["kind"] not in KINDS:
            raise BadInput(f"{path}: row {line}: kind {row['kind']!r} is not one of {KINDS}")
    frame["value"] = pd.to_numeric(frame["value"], errors="coerce")
    if frame["value"].isna().any():
        raise BadInput(f"{path}: row {int(frame['value'].isna().argmax()) + 1}: value is no number")
    frame["steps"] = pd.to_numeric(frame["steps"], errors="coerce").astype("Int64")
    return frame


def marks(frame: pd.DataFrame) -> pd.DataFrame:
    """The observed tok/s with steps and profile: what a figure draws as reference marks."""
    observed = frame[(frame["kind"] == "observed") & (frame["unit"] == "tok/s")]
    return observed[observed["steps"].notna()].reset_index(drop=True)


def derive(frame: pd.DataFrame) -> list[Derived]:
    """Gains and savings by arithmetic, each compared with what was said about it."""
    found = []

    def value(quantity: str, steps: int | None, nccl: str) -> float | None:
        rows = frame[(frame["quantity"] == quantity) & (frame["nccl"] == nccl)]
        if steps is not None:
            rows = rows[rows["steps"] == steps]
        rows = rows[rows["kind"] == "observed"]
        return float(rows["value"].iloc[0]) if len(rows) else None

    def stated(quantity: str) -> tuple[float, str] | None:
        rows = frame[(frame["quantity"] == quantity) & (frame["kind"] == "stated")]
        return (float(rows["value"].iloc[0]), str(rows["note"].iloc[0])) if len(rows) else None

    speed, verify = "request_tokens_per_s", "verify_ms"
    comparisons = (
        # name, before, after, what a positive percentage means, quantity of the statement
        (
            "tuning_gain_without_speculation",
            value(speed, 0, "untuned"),
            value(speed, 0, "tuned"),
            "tuning NCCL makes decoding without speculation {p} faster ({a} to {b} tok/s)",
        ),
        (
            "verify_saving_by_tuning",
            value(verify, None, "untuned"),
            value(verify, None, "tuned"),
            "tuning NCCL makes target verify {p} shorter ({a} to {b} ms)",
        ),
        (
            "gain_of_2_steps_tuned",
            value(speed, 0, "tuned"),
            value(speed, 2, "tuned"),
            "2 steps decode {p} faster than no speculation under the tuned profile ({a} to {b} tok/s)",
        ),
        (
            "gain_of_5_steps_tuned",
            value(speed, 0, "tuned"),
            value(speed, 5, "tuned"),
            "5 steps (average) change decoding by {p} under the tuned profile ({a} to {b} tok/s)",
        ),
    )
    for name, before, after, sentence in comparisons:
        if before is None or after is None:
            continue
        percent = 100.0 * (after / before - 1.0)
        if name.startswith("verify_saving"):
            percent = -percent
        said = stated(name)
        finding = text = sentence.format(p=f"{percent:.1f} %", a=f"{before:g}", b=f"{after:g}")
        agrees, says = None, ""
        if said is not None:
            digits = len(f"{said[0]:g}".partition(".")[2])
            agrees = round(percent, digits) == said[0]
            says = said[1] or f"{said[0]:g} %"
            if not agrees:
                text += f"; the source says {says}, its own numbers give {percent:.1f} %"
        found.append(Derived(name, percent, said[0] if said else None, agrees, says, finding, text))
    return found
