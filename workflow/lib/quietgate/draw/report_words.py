"""Numbers, classes and sentences as report.html prints them."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from quietgate.analyse.claims import axis_words
from quietgate.draw.values import gone
from quietgate.wording import counted


def number(value: Any, digits: int = 4) -> str:
    """A number with that many significant digits and no exponent; "" for none."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)) or value is pd.NA:
        return ""
    if isinstance(value, int) or value == 0:
        return str(value)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def _words(value: Any) -> str:
    """A class or verdict as a person reads it."""
    return "" if value is None or value != value else str(value).replace("_", " ")


def _prose(text: str, lead: bool = False) -> Markup:
    """A sentence for a person: `code` as code, and with `lead` what comes before its first full stop bold."""
    made = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    if lead:
        made = re.sub(r"^.*?\.(?=\s[A-Z]|$)", lambda found: f"<strong>{found[0]}</strong>", made)
    return Markup(made)


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False)


FILTERS = {
    "number": number,
    "words": _words,
    "gone": gone,
    "json": _pretty,
    "prose": _prose,
    "axis": axis_words,
    "counted": counted,
}
