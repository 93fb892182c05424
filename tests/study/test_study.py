"""Cells, order, reference and digests."""

from quietgate.study import Cell, Study


def study(base, **changes):
    for dotted, value in changes.items():
        target = base
        *path, last = dotted.split("__")
        for key in path:
            target = target.setdefault(key, {})
        target[last] = value
    return Study.from_config(base)


def test_ids_are_distinct_folder_names(base):
    base["grid"]["axes"] = {"path": {"flag": "x", "values": ["/a/b", "/a-b", True, 1, "1.0", None]}}
    ids = [c.id for c in Study.from_config(base).cells]
    assert len(set(ids)) == len(ids) == 24
    assert all("/" not in i and " " not in i for i in ids)
    assert Cell(0, "default").id == "steps-0_nccl-default"
    assert Cell(1, "default").id == "steps-1_nccl-default"


def test_order_is_complete_blocks_seeded(base):
    one = study(base, replicates=4, seed=3)
    assert [x.block for x in one.launches] == [b for b in (1, 2, 3, 4) for _ in one.cells]
    for block in (1, 2, 3, 4):
        assert {x.cell for x in one.launches if x.block == block} == set(one.cells)
    orders = {tuple(x.cell.id for x in one.launches if x.block == b) for b in (1, 2, 3, 4)}
    assert len(orders) > 1, "blocks are shuffled apart"
    assert study(base, replicates=4, seed=3).launches == one.launches
    assert study(base, replicates=4, seed=4).launches != one.launches
    assert study(base, replicates=2, seed=3).launches == one.launches[: 2 * len(one.cells)]


def test_reference(base):
    assert study(base).reference.id == "steps-0_nccl-default"
    assert study(base, reference={"nccl": "ll-ring"}).reference.id == "steps-0_nccl-ll-ring"
    assert study(base, reference={}, grid__steps=[2, 3]).reference.steps == 2


def test_reference_without_steps_is_the_cell_that_stands_for_every_speculative_value(base):
    axes = {"topk": {"flag": "speculative-eagle-topk", "values": [1, 2]}}
    base["server"]["speculative"]["draft_tokens"] = 3
    s = study(
        base, grid={"steps": [0, 2], "nccl": ["default"], "axes": axes}, reference={"axes": {"topk": 2}}
    )
    assert s.reference in s.cells
    assert s.launches


def test_digests_follow_what_a_record_depends_on(base):
    one = study(base)
    before = {c.id: one.digests(c) for c in one.cells}
    changed = study(base, nccl_profiles__default={"note": "words only"})
    assert {c.id: changed.digests(c) for c in changed.cells} == before
    changed = study(base, benchmark={"repeats": 5})
    after = {c.id: changed.digests(c) for c in changed.cells}
    assert all(after[i]["server"] == before[i]["server"] for i in before)
    assert all(after[i]["benchmark"] != before[i]["benchmark"] for i in before)
    base["benchmark"] = {}
    changed = study(base, **{"nccl_profiles__ll-ring": {"set": {"NCCL_PROTO": "Simple"}}})
    after = {c.id: changed.digests(c) for c in changed.cells}
    assert {i for i in before if after[i]["server"] != before[i]["server"]} == {
        "steps-0_nccl-ll-ring",
        "steps-2_nccl-ll-ring",
    }
    grown = study(base, grid__steps=[0, 2, 3], replicates=3)
    assert grown.digests(grown.cell("steps-2_nccl-default")) == before["steps-2_nccl-default"]


def test_freeze_and_thaw(base, tmp_path):
    one = study(base)
    one.freeze(tmp_path / "s.json")
    stamp = (tmp_path / "s.json").stat().st_mtime_ns
    again = Study.thaw(tmp_path / "s.json")
    assert again.launches == one.launches
    assert again.digests(again.reference) == one.digests(one.reference)
    one.freeze(tmp_path / "s.json")
    assert (tmp_path / "s.json").stat().st_mtime_ns == stamp
