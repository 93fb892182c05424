"""Calibration: how often the method errs on simulated studies with a known truth.

    python tests/statistics/calibration.py

prints the table of docs/statistics.md; the tests call the same function on some of these worlds.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "workflow/lib"))

from simulated import World, names

from quietgate.analyse.contrasts import Family
from quietgate.analyse.model import Design, Fit
from quietgate.analyse.noise import NoisyCell, noisiest_cell
from quietgate.analyse.optimum import could_be_best
from quietgate.analyse.outlying import flagged


@dataclass(frozen=True)
class Outcome:
    """What 95 % comparisons against the first cell did over many studies.

    Shares of studies: `any_false` with at least one claim about a cell without effect,
    `any_false_plain` the same without the two rules on odd launches (all launches, no one-launch
    rule), `simultaneous` where all intervals cover, `plain_simultaneous` the same with all launches.
    Shares of comparisons: `each` unadjusted 95 % intervals that cover, `found` effects claimed.
    """

    any_false: float
    any_false_plain: float
    simultaneous: float
    plain_simultaneous: float
    each: float
    found: float
    set_aside: float
    detectable: float


def noisy_cell(fit: Fit) -> NoisyCell | None:
    """The noisiest cell where it needs its own variance, as `Models.noisy` gives it to the method."""
    noisiest = noisiest_cell(fit)
    return noisiest if noisiest is not None and noisiest.noisy else None


def calibrate(world: World, studies: int = 400, seed: int = 0, effects: np.ndarray | float = 0.0) -> Outcome:
    """Run the method of `quietgate.analyse.statistics` on simulated studies."""
    rng = np.random.default_rng(seed)
    truth = np.broadcast_to(np.asarray(effects, dtype=float), world.cells)
    truth = truth[1:] - truth[0]
    cell, block = world.layout()
    ids = np.array(names(world.cells))[cell]
    values = world.values(rng, studies, effects)
    families: dict[bytes, tuple[Family, Family]] = {}
    matrix = np.hstack([-np.ones((world.cells - 1, 1)), np.eye(world.cells - 1)])

    def family(keep: np.ndarray) -> tuple[Family, Family]:
        key = keep.tobytes()
        if key not in families:
            design = Design.of(ids[keep].tolist(), block[keep].tolist())
            assert len(design.cells) == world.cells
            # One contrast of a family of one: the ordinary t interval.
            families[key] = (Family(design, matrix, 0.05), Family(design, matrix[:1], 0.05))
        return families[key]

    rows = []
    for y in values:
        keep = np.isfinite(y)
        plain, _ = family(keep)
        fit = Fit.of(plain.design, y[keep])
        with_all = plain.judge(fit)
        out = flagged(plain.design, y[keep])
        kept = keep.copy()
        kept[np.flatnonzero(keep)[out]] = False
        main, single = family(kept)
        fit = Fit.of(main.design, y[kept])
        judged = main.judge(fit, noisy_cell(fit))
        same_side = np.sign(judged.estimate) == np.sign(with_all.estimate)
        claim = judged.beyond & judged.robust & same_side
        null = truth == 0
        narrow = single.critical * judged.error
        rows.append(
            (
                (claim & null).any(),
                (with_all.beyond & null).any(),
                np.all((judged.low <= truth) & (truth <= judged.high)),
                np.all((with_all.low <= truth) & (truth <= with_all.high)),
                np.mean(np.abs(judged.estimate - truth) <= narrow),
                np.mean(claim[~null]) if (~null).any() else np.nan,
                len(out),
            )
        )
    detectable = float(np.exp(np.median(main.detectable(world.launch_sd))) - 1)
    return Outcome(*np.mean(np.array(rows, dtype=float), axis=0).tolist(), detectable)


def bootstrap_coverage(launches: int, studies: int = 2_000, draws: int = 1_000, seed: int = 0) -> float:
    """Coverage of the 95 % percentile bootstrap over launches for one ratio of two cells."""
    rng = np.random.default_rng(seed)
    world = World(cells=2, launches=launches, drift=0.0)
    y = world.values(rng, studies).reshape(studies, launches, 2)
    picks = rng.integers(launches, size=(2, draws, launches))
    covered = 0
    for study in y:
        ratio = study[picks[0], 1].mean(axis=1) - study[picks[1], 0].mean(axis=1)
        low, high = np.quantile(ratio, [0.025, 0.975])
        covered += low <= 0 <= high
    return covered / studies


def sets_hold(world: World, studies: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """How often each cell, as good as every other one, is among those that could be the best.

    Returns:
        Shares of studies by cell (aim: 95 %): with the noisy cell's own variance, and with the pooled one.
    """
    cell, block = world.layout()
    design = Design.of(np.array(names(world.cells))[cell].tolist(), block.tolist())
    columns = np.arange(world.cells)
    held = []
    for y in world.values(np.random.default_rng(seed), studies):
        fit = Fit.of(design, y)
        held.append((could_be_best(fit, columns, 0.05, noisy_cell(fit)), could_be_best(fit, columns, 0.05)))
    own, pooled = np.mean(held, axis=0)
    return own, pooled


def main() -> None:
    """Print the tables of docs/statistics.md."""
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    worlds = {
        "12 cells x 5 launches, quiet": World(),
        "12 cells x 5, no drift": World(drift=0.0),
        "12 cells x 3 launches": World(launches=3),
        "12 cells x 2 launches": World(launches=2),
        "2 cells x 3 launches": World(cells=2, launches=3),
        "22 cells x 5 launches": World(cells=22),
        "44 cells x 5 launches": World(cells=44),
        "22 cells x 5, drift 20 %": World(cells=22, drift=0.2),
        "12 cells x 5, 15 % of later launches failed": World(failed_share=0.15),
        **{
            f"22 cells x 5, one launch {size:+.0%}": World(cells=22, odd=size)
            for size in (-0.03, -0.05, -0.1, -0.3)
        },
        **{
            f"22 cells x 5, a reference launch {size:+.0%}": World(cells=22, odd=size, odd_cell=0)
            for size in (-0.03, -0.05, -0.3)
        },
        "12 cells x 3, one launch -5 %": World(launches=3, odd=-0.05),
        "12 cells x 3, one launch -30 %": World(launches=3, odd=-0.3),
        "12 cells x 5, noise of the reference x 2": World(noisy_cell=(0, 2.0)),
        "12 cells x 5, noise of the reference x 4": World(noisy_cell=(0, 4.0)),
        "22 cells x 3, noise of the reference x 3": World(cells=22, launches=3, noisy_cell=(0, 3.0)),
        "12 cells x 5, noise of one cell x 3": World(noisy_cell=(5, 3.0)),
    }
    print(
        f"{'world (A/A, launch sd 1 %)':44} false false(plain) joint joint(plain) each set aside  detectable"
    )
    for name, world in worlds.items():
        start = time.perf_counter()
        o = calibrate(world, studies)
        print(
            f"{name:44} {o.any_false:5.1%} {o.any_false_plain:9.1%} {o.simultaneous:10.1%}"
            f" {o.plain_simultaneous:9.1%} {o.each:9.1%} {o.set_aside:7.2f} {o.detectable:10.1%}"
            f"   ({time.perf_counter() - start:.0f} s)"
        )
    print("\neffect of one cell of 12, launch sd 1 %: share of studies that claim it")
    for launches in (3, 5):
        for effect in (0.01, 0.02, 0.03, 0.04, 0.05):
            effects = np.zeros(12)
            effects[4] = np.log1p(effect)
            o = calibrate(World(launches=launches), studies, 1, effects)
            print(f"  {launches} launches, {effect:.0%}: {o.found:.1%}")
    print("\na cell as good as the others is among the best: own variance of a noisy cell, pooled variance")
    for cells, launches, factor in ((6, 3, 1.0), (6, 3, 3.0), (6, 5, 3.0), (12, 5, 3.0)):
        own, pooled = sets_hold(World(cells=cells, launches=launches, noisy_cell=(2, factor)), studies)
        for who, name in ((2, "the noisy one"), (0, "another one")):
            shares = f"{own[who]:.1%} {pooled[who]:.1%}"
            print(f"  {cells} cells x {launches}, noise x {factor:.0f}, {name}: {shares}")
    print("\ncoverage of a 95 % percentile bootstrap over launches (one ratio of geometric means)")
    for launches in (3, 4, 5):
        print(f"  {launches} launches: {bootstrap_coverage(launches):.1%}")


if __name__ == "__main__":
    main()
