"""Data frames as plain rows and groups."""

from __future__ import annotations

from typing import Any

import pandas as pd

Row = dict[str, Any]


def each(frame: pd.DataFrame) -> list[Row]:
    """Each row as a mapping from column to value."""
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]


def groups(frame: pd.DataFrame, *columns: str, sort: bool = True) -> list[tuple[Any, pd.DataFrame]]:
    """The frame's parts by the values of the columns: (value, part), or (tuple of values, part)."""
    by: Any = columns[0] if len(columns) == 1 else list(columns)
    return list(frame.groupby(by, sort=sort, dropna=False))
