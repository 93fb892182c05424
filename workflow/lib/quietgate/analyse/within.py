"""What happens inside a launch: resampling of prompts and repeats.

Inside one server life the same prompts run in every repeat, so prompts and repeats are crossed and
both are resampled, whole. The interval says how well the launch's own value is known for other prompts
of this kind and other passes; it says nothing about the next launch, and no claim rests on it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

SEED = 64
_BATCH = 16


def within_launches(
    requests: pd.DataFrame,
    value: str = "decode_tokens_per_s",
    *,
    draws: int = 200,
    level: float = 0.95,
    seed: int = SEED,
) -> pd.DataFrame:
    """Bootstrap interval of every launch's value and the spread over repeats and prompts.

    Args:
        requests: timed requests with cell, launch, concurrency, repeat, prompt_id and `value`.
        value: the column to summarise: median over the requests of a repeat, then over the repeats.
        draws: bootstrap draws per launch.
        level: probability content of the percentile interval.
        seed: of the resampling.

    Returns:
        One row per cell, launch and concurrency: estimate, low, high, repeats, prompts, repeat_sd and
        prompt_sd (standard deviations of the log value over repeats and over prompts).
    """
    frame = requests[np.isfinite(requests[value]) & (requests[value] > 0)]
    keys = ["cell", "launch", "concurrency"]
    # With many streams a pass sends prompts more than once; the prompt is what is resampled.
    once = [*keys, "repeat", "prompt_id"]
    if frame.duplicated(once).any():
        frame = frame.groupby(once, as_index=False)[value].median()
    rng = np.random.default_rng(seed)
    shapes: dict[tuple[int, int], list[tuple[tuple[object, ...], np.ndarray]]] = {}
    for key, rows in frame.groupby(keys, sort=True):
        repeat, _ = pd.factorize(rows["repeat"], sort=True)
        prompt, _ = pd.factorize(rows["prompt_id"], sort=True)
        table = np.full((repeat.max() + 1, prompt.max() + 1), np.nan)
        table[repeat, prompt] = rows[value].to_numpy(dtype=float)
        shapes.setdefault((table.shape[0], table.shape[1]), []).append((key, table))
    records = []
    for (n_repeats, n_prompts), launches in shapes.items():
        prompts = rng.integers(n_prompts, size=(draws, n_prompts))
        repeats = rng.integers(n_repeats, size=(draws, n_repeats))
        for start in range(0, len(launches), _BATCH):
            part = launches[start : start + _BATCH]
            tables = np.stack([t for _, t in part])
            ends = _interval(tables, prompts, repeats, level)
            log = np.log(tables)
            for (key, table), (low, high), logs in zip(part, ends, log, strict=True):
                records.append(
                    dict(zip(keys, key, strict=True))
                    | {
                        "estimate": float(np.median(np.nanmedian(table, axis=1))),
                        "low": low,
                        "high": high,
                        "repeats": n_repeats,
                        "prompts": n_prompts,
                        "repeat_sd": _sd(np.nanmean(logs, axis=1)),
                        "prompt_sd": _sd(np.nanmean(logs, axis=0)),
                    }
                )
    columns = [*keys, "estimate", "low", "high", "repeats", "prompts", "repeat_sd", "prompt_sd"]
    return pd.DataFrame(records, columns=columns).sort_values(keys, ignore_index=True)


def _interval(
    tables: np.ndarray, prompts: np.ndarray, repeats: np.ndarray, level: float
) -> list[tuple[float, float]]:
    """Percentile intervals of launches (launches x repeats x prompts) over shared resamples."""
    median = np.nanmedian if np.isnan(tables).any() else np.median
    per_repeat = median(tables[:, :, prompts], axis=3)  # launches x repeats x draws
    picked = np.take_along_axis(per_repeat, repeats.T[None], axis=1)
    values = np.median(picked, axis=1)
    ends = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=1)
    return [(float(low), float(high)) for low, high in ends.T]


def _sd(values: np.ndarray) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None
