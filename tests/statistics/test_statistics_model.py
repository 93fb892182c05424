"""The linear model and the joint distribution, against scipy and statsmodels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats

from quietgate.analyse.contrasts import Family
from quietgate.analyse.joint import LargestT
from quietgate.analyse.model import Design, Fit
from quietgate.analyse.noise import NoisyCell, noisiest_cell
from quietgate.analyse.optimum import could_be_best, draws
from quietgate.analyse.outlying import flagged, survives


def unbalanced(seed: int = 0, cells: int = 6, blocks: int = 4, missing: int = 5) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        [(f"c{c}", b) for c in range(cells) for b in range(1, blocks + 1)], columns=["cell", "block"]
    )
    frame = frame.drop(rng.choice(len(frame), missing, replace=False)).reset_index(drop=True)
    frame["y"] = rng.normal(4, 0.02, len(frame)) + 0.1 * frame["block"]
    return frame


def against_first(cells: int) -> np.ndarray:
    return np.hstack([-np.ones((cells - 1, 1)), np.eye(cells - 1)])


@pytest.mark.parametrize("missing", [0, 3, 7])
def test_effects_errors_and_residual_equal_ordinary_least_squares(missing):
    frame = unbalanced(seed=missing, missing=missing)
    ols = smf.ols("y ~ C(cell) + C(block)", frame).fit()
    design = Design.of(frame["cell"].tolist(), frame["block"].tolist())
    fit = Fit.of(design, frame["y"].to_numpy())
    judged = Family(design, against_first(6), 0.05).judge(fit)
    names = [f"C(cell)[T.c{c}]" for c in range(1, 6)]
    assert design.df == ols.df_resid
    assert fit.sd == pytest.approx(np.sqrt(ols.mse_resid))
    assert judged.estimate == pytest.approx(ols.params[names].to_numpy())
    assert judged.error == pytest.approx(ols.bse[names].to_numpy())
    assert design.freedom == pytest.approx(1 - ols.get_influence().hat_matrix_diag)


def test_cells_without_a_common_block_are_in_separate_components():
    design = Design.of(["a", "b", "a", "b", "c", "d"], [1, 1, 2, 2, 3, 3])
    part = dict(zip(design.cells, design.component, strict=True))
    assert part["a"] == part["b"] != part["c"] == part["d"]
    assert design.df == 6 - 4 - 3 + 2


def test_leaving_one_launch_out_in_closed_form_equals_a_refit():
    frame = unbalanced(seed=5, missing=2)
    y = frame["y"].to_numpy()
    design = Design.of(frame["cell"].tolist(), frame["block"].tolist())
    fit = Fit.of(design, y)
    matrix = against_first(6)[:1]
    family = Family(design, matrix, 0.05)
    estimate = matrix @ fit.effects
    smallest = np.inf
    for i in np.flatnonzero(family.involved[0]):
        less = Fit.of(design.without([int(i)]), np.delete(y, i))
        t = Family(less.design, matrix, 0.05).judge(less).t[0]
        smallest = min(smallest, np.sign(estimate[0]) * t)
    for critical, expected in ((smallest - 1e-6, True), (smallest + 1e-6, False)):
        assert survives(fit, family.weights, family.involved, estimate, critical)[0] == expected


def test_one_way_layout_gives_scipys_dunnett():
    rng = np.random.default_rng(3)
    groups = [rng.normal(m, 1, n) for m, n in ((0, 5), (0.5, 5), (2.2, 4), (1.1, 3), (0.2, 6))]
    theirs = stats.dunnett(*groups[1:], control=groups[0], rng=1)
    means = np.zeros((5, 23))
    for i, ends in enumerate(np.split(np.arange(23), [5, 10, 14, 17])):
        means[i, ends] = 1 / len(ends)
    weights = against_first(5) @ means
    y = np.concatenate(groups)
    sd = np.sqrt(sum(((g - g.mean()) ** 2).sum() for g in groups) / 18)
    largest = LargestT(weights)
    assert largest.p(theirs.statistic, 18) == pytest.approx(theirs.pvalue, abs=0.004)
    half = largest.critical(0.05, 18) * sd * np.linalg.norm(weights, axis=1)
    interval = theirs.confidence_interval(0.95)
    assert weights @ y - half == pytest.approx(interval.low, abs=0.02)
    assert weights @ y + half == pytest.approx(interval.high, abs=0.02)


@pytest.mark.parametrize(("contrasts", "df"), [(3, 4), (8, 12), (8, 200)])
@pytest.mark.parametrize("one_sided", [False, True])
def test_tail_equals_the_multivariate_t(contrasts, df, one_sided):
    weights = np.random.default_rng(contrasts).normal(size=(contrasts, 5))
    rows = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    shape = rows @ rows.T + 1e-9 * np.eye(contrasts)
    largest = LargestT(weights, one_sided=one_sided)
    for alpha in (0.2, 0.05, 0.01):
        c = largest.critical(alpha, df)
        upper = np.full(contrasts, c)
        inside = stats.multivariate_t.cdf(
            upper,
            shape=shape,
            df=df,
            lower_limit=np.full(contrasts, -np.inf if one_sided else -c),
            random_state=1,
            maxpts=200_000,
        )
        assert 1 - inside == pytest.approx(alpha, rel=0.03)


def test_one_contrast_is_the_ordinary_t_and_small_p_values_are_exact():
    largest = LargestT(np.array([[1.0, -1.0, 0.0]]))
    assert largest.critical(0.05, 7) == pytest.approx(stats.t.isf(0.025, 7))
    assert largest.p(30.0, 7)[0] == pytest.approx(2 * stats.t.sf(30, 7), rel=1e-6)


def test_a_lone_odd_launch_is_flagged_and_a_noisy_cell_is_not():
    rng = np.random.default_rng(11)
    cells = [f"c{c}" for c in range(8) for _ in range(5)]
    design = Design.of(cells, list(range(5)) * 8)
    y = rng.normal(0, 0.01, design.n)
    assert flagged(design, y) == []
    odd = y.copy()
    odd[13] -= 0.2
    assert flagged(design, odd) == [13]
    noisy = y.copy()
    noisy[10:15] = [-0.12, 0.1, 0.13, -0.09, 0.0]
    assert flagged(design, noisy) == []
    cell = noisiest_cell(Fit.of(design, noisy))
    assert cell is not None
    assert cell.cell == "c2"
    assert cell.noisy
    assert cell.sd > 5 * cell.others_sd


def test_with_two_launches_no_launch_is_set_aside():
    design = Design.of([f"c{c}" for c in range(10) for _ in range(2)], [1, 2] * 10)
    y = np.random.default_rng(0).normal(0, 0.01, 20)
    y[7] += 0.5
    assert flagged(design, y) == []


def test_a_noisy_cell_gets_wider_intervals_and_the_others_do_not():
    rng = np.random.default_rng(2)
    design = Design.of([f"c{c}" for c in range(8) for _ in range(5)], list(range(5)) * 8)
    y = rng.normal(0, 0.01, 40)
    y[10:15] = [-0.12, 0.1, 0.13, -0.09, 0.0]
    fit = Fit.of(design, y)
    family = Family(design, against_first(8), 0.05)
    plain, own = family.judge(fit), family.judge(fit, noisiest_cell(fit))
    wider = (own.high - own.low) / (plain.high - plain.low)
    assert wider[1] > 1.5
    assert np.delete(wider, 1) == pytest.approx(1)


@pytest.fixture
def one_noisy():
    """Eight cells x three launches; c2 scatters by 17 %, the others by 1 %, and c1 is far behind."""
    design = Design.of([f"c{c}" for c in range(8) for _ in range(3)], list(range(3)) * 8)
    y = np.random.default_rng(2).normal(0, 0.01, 24)
    y[6:9] += [-0.18, 0.16, 0.02]
    y[3:6] -= 0.9

    def fit(shift: float) -> tuple[Fit, NoisyCell]:
        shifted = Fit.of(design, y + np.where(design.cell_of == 2, shift, 0.0))
        noisy = noisiest_cell(shifted)
        assert noisy is not None
        assert (noisy.cell, noisy.noisy) == ("c2", True)
        return shifted, noisy

    return fit


@pytest.mark.parametrize(("shift", "kept"), [(-0.3, [2]), (0.3, [0, 3, 4, 5, 6, 7])])
def test_a_noisy_cell_neither_beats_nor_is_beaten_on_the_others_noise(one_noisy, shift, kept):
    fit, noisy = one_noisy(shift)
    cells = np.arange(8)
    plain, own = could_be_best(fit, cells, 0.05), could_be_best(fit, cells, 0.05, noisy)
    assert np.flatnonzero(own & ~plain).tolist() == kept
    assert (own >= plain).all()
    assert not own[1]
    without = np.delete(cells, 2)
    assert (could_be_best(fit, without, 0.05, noisy) == could_be_best(fit, without, 0.05)).all()


def test_draws_of_a_noisy_cell_have_its_variance_and_the_others_the_pooled_one(one_noisy):
    fit, noisy = one_noisy(0.0)
    low, high = np.quantile(draws(fit, noisy), [0.025, 0.975], axis=0)
    sd, df = np.full(8, fit.sd), np.full(8, float(fit.design.df))
    sd[2], df[2] = noisy.sd, noisy.df
    assert (high - low) / 2 == pytest.approx(stats.t.isf(0.025, df) * sd / np.sqrt(3), rel=0.05)
    assert (low + high) / 2 == pytest.approx(fit.effects, abs=0.02)
    assert draws(fit, None)[:, 0].std() == pytest.approx(draws(fit, noisy)[:, 0].std(), rel=0.05)


def test_where_the_others_have_no_noise_at_all_the_noisy_cell_is_noisy():
    """Without the noisy cell's the residual is zero but for rounding, on either side of it."""
    design = Design.of(list("aaaabbccdd"), [1, 1, 2, 2, 3, 4, 3, 4, 3, 4])
    rng = np.random.default_rng(0)
    for _ in range(50):
        same = np.repeat(rng.normal(4, 0.3, 3), 2) + np.tile(rng.normal(0, 0.05, 2), 3)
        cell = noisiest_cell(Fit.of(design, np.r_[rng.normal(4, 0.1, 4), same]))
        assert cell is not None
        assert (cell.cell, cell.noisy) == ("a", True)
        assert cell.others_sd < 1e-6


def test_detectable_effect_is_claimed_in_eighty_percent():
    design = Design.of([f"c{c}" for c in range(8) for _ in range(4)], list(range(4)) * 8)
    family = Family(design, against_first(8), 0.05)
    effect = family.detectable(0.01)
    assert effect == pytest.approx(effect[0])
    rng = np.random.default_rng(4)
    found = 0
    for _ in range(1000):
        y = rng.normal(0, 0.01, design.n)
        y[:4] -= effect[0]  # the reference is slower than all others
        judged = family.judge(Fit.of(design, y))
        found += (judged.beyond & judged.robust & (judged.estimate > 0))[3]
    assert 0.75 < found / 1000 < 0.85
