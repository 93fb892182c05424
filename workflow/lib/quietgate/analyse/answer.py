"""The study's answer in three sentences, and what it refuses to conclude."""

from __future__ import annotations

from quietgate.analyse import claims
from quietgate.analyse.levels import Level
from quietgate.analyse.question import Question, Row
from quietgate.wording import counted


def refusals(level: Level, question: Question) -> list[Row]:
    """What could not be concluded at this level as a whole, and why."""
    summary = level.summary
    at = f"at {counted(question.concurrency, 'stream')}"
    found: list[tuple[str, str]] = []
    if summary["status"] == "no_reference":
        found.append(
            (
                "no_reference",
                f"No comparison {at}: no launch of the reference cell {question.reference} passed.",
            )
        )
    if summary["status"] == claims.UNKNOWN_VARIATION:
        found.append(
            (
                claims.UNKNOWN_VARIATION,
                f"No claim {at}: {claims.ONE_EACH}; measure with `replicates: 3` or more.",
            )
        )
    missing = [row["cell"] for row in level.estimates if row["launches"] == 0]
    if missing:
        found.append(
            ("no_launch", f"No passed launch {at} of: {', '.join(missing)}."),
        )
    for verdict in claims.NOT_PROVED.values():
        rows = [r for r in level.contrasts if r["verdict"] == verdict]
        if rows:
            profiles = sorted({r["nccl"] for r in rows} | {r["nccl_against"] for r in rows})
            found.append(
                (
                    verdict,
                    f"No claim {at} on what the NCCL profiles {', '.join(profiles)} do: "
                    f"{claims.why_not_proved(verdict)}.",
                )
            )
    fragile = sum(r["verdict"] in (claims.ONE_LAUNCH, claims.SET_ASIDE) for r in level.contrasts)
    so = "and so is not claimed" if fragile == 1 else "and so are not claimed"
    if fragile:
        found.append(
            (
                claims.ONE_LAUNCH,
                f"{counted(fragile, 'difference')} {at} would vanish without a single launch {so}.",
            )
        )
    noisy = summary["noisiest_cell"]
    if noisy and noisy["own_variance_used"]:
        found.append(
            (
                "noisy_cell",
                f"Launches of {noisy['cell']} vary more {at} ({noisy['sd_percent']:.1f} % against"
                f" {noisy['others_sd_percent']:.1f} %): comparisons with it use its own variance.",
            )
        )
    for odd in summary["set_aside"]:
        found.append(("set_aside", f"Set aside {at} as odd: {odd['text']}."))
    return [
        {"epoch": question.epoch, "concurrency": question.concurrency, "why": why, "text": text}
        for why, text in found
    ]


def answer(
    levels: list[Level],
    axes: tuple[str, ...],
    left_out: list[Row],
    refused: list[Row],
    out_of_block: list[Row],
) -> list[str]:
    """Three sentences: the best cell and by how much, whether the optimum moved, what stays open."""
    measured = [level for level in levels if level.summary["status"] != "no_reference"]
    if not measured:
        return [
            "No cell could be compared with the reference.",
            "Whether the best number of steps moves cannot be said.",
            " ".join(r["text"] for r in refused) or "Nothing was measured.",
        ]
    level = min(measured, key=lambda x: (-x.summary["cells"], x.summary["concurrency"]))
    summary = level.summary
    top = _best(level, axes)
    words = claims.cell_words(top, axes)
    among = "compared" if _apart(level) else "measured"
    several = len({x.summary["epoch"] for x in measured}) > 1
    of_epoch = f" of epoch {summary['epoch']}" if several else ""
    lead = (
        f"At {counted(summary['concurrency'], 'stream')} the fastest {among} cell{of_epoch} is {words}"
        f" ({top['value']:.1f} tok/s)"
    )
    row = next((r for r in level.contrasts if r["kind"] == "reference" and r["cell"] == top["cell"]), None)
    if row is None:
        first = f"{lead}: the reference itself; no cell was measured faster."
    elif row["verdict"] == claims.UNKNOWN_VARIATION:
        first = f"{lead}, {row['ratio']:.3f} times the reference {row['against_words']}, which is no claim."
    elif row["claim"]:
        first = (
            f"{lead}, {row['percent']:.1f} % faster than the reference {row['against_words']}"
            f" ({claims.numbers(row)})."
        )
    else:
        first = f"{lead}. {row['text']}"
    # What is not proved of the profiles is said once, here.
    unproved = _left_out(level, summary["reference"])
    first = " ".join([first, *_apart(level), *unproved, *_elsewhere(level, top, measured, axes)])
    said = set(claims.NOT_PROVED.values()) if unproved else set()
    if level.moves and {r["verdict"] for r in level.moves} <= said:
        second = (
            "For the same reason it was not tested whether the best number of steps moves with the profile."
        )
    else:
        second = _moves(level.moves)
    second = second or (
        "Whether the best number of steps moves cannot be said: no second NCCL profile was measured"
        f" with several numbers of steps{_could_be_best(level)}."
    )
    if several:
        second = f"Within epoch {summary['epoch']}: {second[0].lower()}{second[1:]}"
    open_ = [
        r["text"] for r in refused if r["concurrency"] == summary["concurrency"] and r["why"] not in said
    ]
    if summary["detectable_percent"] is not None:
        open_.insert(
            0,
            f"Differences from the reference under about {summary['detectable_percent']:.1f} % could"
            " have gone unseen.",
        )
    if several:
        open_.append("Cells of different epochs are not compared, nor is the best of all their steps.")
    lost = {(x["cell"], x["launch"]) for x in left_out if not x["counts"]}
    if lost:
        open_.append(f"Launches without a result: {len(lost)}.")
    open_ += _out_of_block(out_of_block)
    return [first, second, " ".join(open_) or "Nothing stays open."]


def _out_of_block(launches: list[Row]) -> list[str]:
    """Which launches are compared inside another block than they were planned for."""
    named = [
        f"{x['launch']} of {x['cell']} (block {x['block']} instead of {x['planned_block']})"
        for x in launches[:4]
    ]
    more = f" and {len(launches) - 4} more" if launches[4:] else ""
    if not named:
        return []
    return [f"Compared inside the block in whose time they were measured: {claims.listed(named)}{more}."]


def _moves(moves: list[Row]) -> str:
    """Whether the best steps move, in as few sentences as that takes: the report lists each move below."""
    if len(moves) < 2 or moves[0]["axes_words"]:
        return " ".join(r["text"] for r in moves)
    start = f"Whether the best number of steps moves from {moves[0]['against']} to"
    where = f"at {counted(moves[0]['concurrency'], 'stream')}"

    def profiles(some: list[Row]) -> str:
        return claims.listed([r["nccl"] for r in some], "or")

    unknown = [r for r in moves if r["verdict"] == claims.UNKNOWN_VARIATION]
    open_ = [r for r in moves if r["verdict"] == "open"]
    said = [r["text"] for r in moves if r not in unknown and (r not in open_ or len(open_) == 1)]
    if unknown:
        said.append(f"{start} {profiles(unknown)} {where} cannot be said: {claims.ONE_EACH}.")
    if len(open_) > 1:
        could = [f"{claims.steps_list(r['could_be_best'])} under {r['nccl']}" for r in open_]
        base = f"{claims.steps_list(open_[0]['could_be_best_against'])} under {open_[0]['against']}"
        said.append(
            f"{start} {profiles(open_)} {where} is open: could be best are {claims.listed([base, *could])}."
        )
    return " ".join(said)


def _could_be_best(level: Level) -> str:
    """The steps that could be the best where there is one profile only."""
    found = [str(r["steps"]) for r in level.optimum if r["could_be_best"]]
    # Other axes have a best of their own, and so a number of steps may be there twice.
    if not found or len({r["steps"] for r in level.optimum}) < len(level.optimum):
        return ""
    steps = "step" if found == ["1"] else "steps"
    return f"; under {level.optimum[0]['nccl']} the best could be {claims.listed(found, 'or')} {steps}"


def _elsewhere(level: Level, top: Row, measured: list[Level], axes: tuple[str, ...]) -> list[str]:
    """Where another cell was the fastest: with other numbers of streams, and among cells added later.

    A reader takes the first sentence for the whole study, and it is about one level of it.
    """
    epoch, concurrency = level.summary["epoch"], level.summary["concurrency"]
    beside = [x for x in measured if x.summary["epoch"] == epoch and x is not level]
    told = [
        f"at {counted(other.summary['concurrency'], 'stream')} {_fastest(other, axes)}"
        for other in beside
        if _best(other, axes)["cell"] != top["cell"]
    ]
    found = []
    if told:
        found.append(f"With other numbers of streams another cell was the fastest: {'; '.join(told)}.")
    found += [
        f"Epoch {other.summary['epoch']} is compared apart, with its own launches of the reference: the"
        f" fastest there was {_fastest(other, axes)}."
        for other in measured
        if other.summary["epoch"] != epoch and other.summary["concurrency"] == concurrency
    ]
    return found


def _fastest(level: Level, axes: tuple[str, ...]) -> str:
    """The fastest cell of a level, its speed and its ratio to the reference, in brief."""
    cell = _best(level, axes)
    row = next((r for r in level.contrasts if r["kind"] == "reference" and r["cell"] == cell["cell"]), None)
    ratio = "the reference itself"
    if row is not None:
        ratio = f"{row['ratio']:.3f} times the reference, {'claimed' if row['claim'] else 'no claim'}"
    return f"{claims.cell_words(cell, axes)} ({cell['value']:.1f} tok/s, {ratio})"


def _best(level: Level, axes: tuple[str, ...]) -> Row:
    """The fastest cell whose speed may be put down to what its name says.

    A cell under a profile that is not proved does not count. One whose profile was not exercised is the same
    configuration as that of the reference's profile, and stands in for it where that was not measured.
    """
    known = [row for row in level.estimates if row["value"] is not None and row["cell"] in _comparable(level)]

    def place(row: Row) -> tuple[object, ...]:
        return (row["steps"], *(claims.axis_words(axis, row[axis]) for axis in axes))

    proved = [row for row in known if row["cell"] not in level.unproved]
    covered = {place(row) for row in proved}
    stand_ins = [
        row
        for row in known
        if level.unproved.get(row["cell"]) == "not_exercised" and place(row) not in covered
    ]
    return max([*proved, *stand_ins], key=lambda row: row["value"])


def _comparable(level: Level) -> set[str]:
    """The reference and the cells that blocks on one machine connect to it."""
    return {str(level.summary["reference"])} | {
        str(row["cell"]) for row in level.contrasts if row["kind"] == "reference"
    }


def _apart(level: Level) -> list[str]:
    """Which measured cells are compared with nothing here, said once."""
    comparable = _comparable(level)
    apart = [r["cell"] for r in level.estimates if r["value"] is not None and r["cell"] not in comparable]
    if not apart:
        return []
    return [f"Not compared, for want of a block on one machine with the reference: {', '.join(apart)}."]


def _left_out(level: Level, reference: str) -> list[str]:
    """What is not proved of which profiles, said once."""
    profile = {row["cell"]: str(row["nccl"]) for row in level.estimates}
    found = []
    for proof in dict.fromkeys(level.unproved.values()):
        names = list(dict.fromkeys(profile[c] for c, why in level.unproved.items() if why == proof))
        listed = ", ".join(names)
        if proof == "not_exercised":
            found.append(
                f"Between the NCCL profiles {profile[reference]} and {listed} nothing is compared: NCCL did"
                " no work that a profile could change, so cells that differ only by them are the same"
                f" configuration, measured again; here {profile[reference]} stands for it."
            )
        else:
            why = claims.why_not_proved(claims.NOT_PROVED[proof])
            found.append(f"Cells under {listed} are left out of this sentence: {why}.")
    return found
