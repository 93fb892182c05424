"""Claims in plain words, and the words for what is not claimed and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quietgate.wording import counted

# What a higher value of a metric is called, what a lower one, and the verb of the sentence.
WORDS = {
    "decode_tokens_per_s": ("decodes", "faster", "slower"),
    "request_tokens_per_s": ("serves a request", "faster", "slower"),
    "output_tokens_per_s": ("gives", "more tokens per second", "fewer tokens per second"),
}

CLAIM = "claim"
NO_DIFFERENCE = "no_difference_shown"
ONE_LAUNCH = "rests_on_one_launch"
SET_ASIDE = "rests_on_setting_a_launch_aside"
NOT_PROVED = {
    "not_exercised": "not_exercised",
    "contradicted": "profile_contradicted",
    "unknown": "profile_not_proved",
}
NO_PRIMARY = "no_cell_differs_from_the_reference"
UNKNOWN_VARIATION = "launch_variation_unknown"
ONE_EACH = "one launch per cell, so the variation from launch to launch is unknown"

_PROFILE_WHY = {
    "not_exercised": "NCCL did no work that the profile could change, so a difference cannot come from it",
    "contradicted": "NCCL's own log contradicts the profile",
    "unknown": "NCCL's log does not show whether the profile reached the ranks",
}


def why_not_proved(verdict: str) -> str:
    """The reason behind a verdict of `NOT_PROVED`."""
    return next(_PROFILE_WHY[proof] for proof, name in NOT_PROVED.items() if name == verdict)


def cell_words(facts: Mapping[str, Any], axes: tuple[str, ...] = ()) -> str:
    """A cell as a person says it: "2 steps, tuned, topk 4"."""
    words = steps_words(int(facts["steps"]))
    return ", ".join([words, str(facts["nccl"]), *(axis_words(axis, facts[axis]) for axis in axes)])


def steps_words(steps: int) -> str:
    """A number of steps in words."""
    return {0: "no speculation", 1: "1 step"}.get(steps, f"{steps} steps")


def axis_words(axis: str, value: Any) -> str:
    """A value of a further axis as a person says it, as in the cells' names: "graphs none", "graphs on"."""
    if value is None or value != value:
        return f"{axis} none"
    if isinstance(value, bool | np.bool_):
        return f"{axis} {'on' if value else 'off'}"
    return f"{axis} {value}"


def ratio(log_ratio: float) -> float:
    """A log ratio as a ratio; infinite where an interval has no end worth a number."""
    return math.exp(log_ratio) if log_ratio < 50.0 else math.inf


def percent(log_ratio: float) -> float:
    """A log ratio as a change in percent."""
    return 100.0 * math.expm1(log_ratio) if log_ratio < 50.0 else math.inf


def _number(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "no limit"


def numbers(row: Mapping[str, Any]) -> str:
    """The parenthesis behind every sentence: ratio, interval, n, correction."""
    if row["ratio_low"] is None:
        return f"ratio {row['ratio']:.3f}, one launch per cell"
    return (
        f"ratio {row['ratio']:.3f}, {100 * row['level']:.3g} % interval {row['ratio_low']:.3f} to"
        f" {_number(row['ratio_high'])}, {counted(row['launches'], 'launch')} against"
        f" {row['launches_against']}, corrected for {counted(row['family'], 'comparison')}"
    )


def sentence(row: Mapping[str, Any], metric: str) -> str:
    """What one comparison says, with everything a reader needs to judge it."""
    verb, higher, lower = WORDS.get(metric, (f"has {metric}", "higher", "lower"))
    where = f"at {counted(row['concurrency'], 'stream')}"
    a, b = row["cell_words"], row["against_words"]
    size = math.log(row["ratio"])
    verdict = row["verdict"]
    if verdict == UNKNOWN_VARIATION:
        return (
            f"No claim on {a} against {b} {where}: one launch per cell, so the variation from launch"
            f" to launch is unknown (ratio {row['ratio']:.3f}); measure with `replicates: 3` or more."
        )
    told = numbers(row)
    least = row["detectable_percent"]
    seen = (
        f" Differences under {least:.1f} % could have gone unseen."
        if least is not None
        else " No difference, however large, could have been shown with so few launches."
    )
    if row["kind"] == "interaction":
        gain = f"the speed-up of {a.split(', ')[0]} over {row['over_words']}"
        profile, other = row["nccl"], row["nccl_against"]
        claim = (
            f"{gain[0].upper()}{gain[1:]} is {abs(percent(size)):.1f} %"
            f" {'higher' if size > 0 else 'lower'} under {profile} than under {other} {where}"
        )
        open_ = f"No difference shown in {gain} between {profile} and {other} {where}"
    else:
        claim = (
            f"{a[0].upper()}{a[1:]} {verb} {abs(percent(size)):.1f} %"
            f" {higher if size > 0 else lower} than {b} {where}"
        )
        open_ = f"No difference shown between {a} and {b} {where}"
    if verdict == CLAIM:
        end = f" The smallest difference seen with 80 % probability is {least:.1f} %." if least else ""
        if row["set_aside"]:
            end += (
                f" Set aside as odd: {row['set_aside']}; with it the ratio is"
                f" {row['ratio_all']:.3f} ({row['ratio_all_low']:.3f} to"
                f" {row['ratio_all_high']:.3f})."
            )
        return f"{claim} ({told}).{end}"
    if verdict in NOT_PROVED.values():
        why = why_not_proved(verdict)
        return f"No claim on the NCCL profile from {a} against {b} {where}: {why} ({told})."
    if verdict == ONE_LAUNCH:
        return (
            f"No claim on {a} against {b} {where}: the interval leaves out no difference, but"
            f" without one of the launches it would not ({told}). More launches would tell."
        )
    if verdict == SET_ASIDE:
        return (
            f"No claim on {a} against {b} {where}: with the launch that was set aside as odd"
            f" ({row['set_aside']}) the difference would point the other way ({told})."
        )
    if verdict == NO_PRIMARY:
        return f"No claim on {a} against {b} {where}: no cell differs from the reference ({told})."
    return f"{open_} ({told}).{seen}"


def move_sentence(row: Mapping[str, Any]) -> str:
    """Whether the best number of steps moves between two profiles, in one sentence."""
    where = f"at {counted(row['concurrency'], 'stream')}"
    here, there = row["nccl"], row["against"]
    rest = f", {row['axes_words']}" if row["axes_words"] else ""
    could = steps_list(row["could_be_best"])
    could_there = steps_list(row["could_be_best_against"])
    if row["verdict"] == UNKNOWN_VARIATION:
        return (
            f"Whether the best number of steps moves from {there} to {here}{rest} {where} cannot be"
            f" said: {ONE_EACH}."
        )
    if row["verdict"] in NOT_PROVED.values():
        why = why_not_proved(row["verdict"])
        return (
            f"Whether the best number of steps moves from {there} to {here}{rest} {where} was not"
            f" tested: {why}."
        )
    known = row["probability_moved"] is not None
    chance = f"probability that it differs {100 * row['probability_moved']:.0f} %" if known else ""
    if row["verdict"] == "moved":
        return (
            f"The best number of steps moves {where}: {could_there} under {there}, {could} under"
            f" {here}{rest} ({chance}; no number of steps could be best in both)."
        )
    if row["verdict"] == "unmoved":
        return (
            f"The best number of steps stays {could} {where} under {there} and {here}{rest}"
            f" ({chance}; no other could be best in either)."
        )
    tied = (
        f" ({chance}; near ties alone would give {100 * row['probability_if_tied']:.0f} %)" if known else ""
    )
    return (
        f"Whether the best number of steps moves from {there} to {here}{rest} {where} is open: could"
        f" be best are {could_there} under {there} and {could} under {here}{tied}.{_keeping(row)}"
    )


def _keeping(row: Mapping[str, Any]) -> str:
    """What the other profile's best steps would cost here at most, and what nobody knows."""
    one_sided, cost = row["only_one_side"], row["keeping_costs_at_most_percent"]
    steps = "step" if one_sided == [1] else "steps"
    text = f" Not measured under both profiles: {steps_list(one_sided, 'and')} {steps}." if one_sided else ""
    if cost is None or row["probability_moved"] is None:
        return text
    among = ", against the steps measured under both" if one_sided else ""
    kept = steps_words(row["kept_steps"])
    return f"{text} Keeping {kept} under {row['nccl']} costs at most {cost:.1f} %{among}."


def steps_list(steps: list[int], last: str = "or") -> str:
    """Numbers of steps as a person says them: "2 or 4"."""
    return listed([str(s) for s in steps], last)


def listed(words: Sequence[str], last: str = "and") -> str:
    """Words in a row as a person says them: "a, b and c"; "none" without any."""
    if len(words) < 2:
        return words[0] if words else "none"
    return f"{', '.join(words[:-1])} {last} {words[-1]}"
