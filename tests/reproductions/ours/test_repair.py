import pytest
import torch

from relucid.experiments import run
from relucid_reproductions.ours import repair as ours
from relucid_reproductions.ours._stack import Architecture, Stack
from relucid_reproductions.ours.repair import Learners, Way, grown

FEW = {"digits": 100, "batch": 20, "epochs": 1}
KEEPING = (ours.UNCHANGED, ours.FORGOTTEN, ours.REVIVED, *ours.ANCHORED.values(), ours.INJECTED, ours.GROWN,
           ours.CONVERTED, ours.CONVERTED_NEW, ours.BOTH, ours.BOTH_NEW)  # fmt: skip
each_way = pytest.mark.parametrize("row", ours.WAYS)


@each_way
def test_what_is_said_to_keep_outputs_does(row):
    learners = Learners("labels", ours.WAYS[row], 1e-3, [1, 2], **FEW)
    learners.learn()
    before = learners(learners.shown).detach()
    learners.repair()
    moved = float((learners(learners.shown).detach() - before).abs().max())
    assert moved <= 1e-4 if row in KEEPING else row == ours.REDO or moved > 1e-2


@each_way
def test_every_way_goes_on_learning(row):
    learners = Learners("labels", ours.WAYS[row], 1e-3, [1], **FEW)
    learners.learn()
    learners.repair()
    before = learners.stack.flat.clone()
    learners.learn()
    assert not torch.equal(before, learners.stack.flat)
    assert bool(torch.isfinite(learners.stack.flat).all())


def test_all_ways_learn_the_same_tasks():
    learners = [Learners("pixels", way, 1e-3, [1, 2], **FEW) for way in (Way(), Way("new"), Way(perturb=0.5))]
    for each in learners:
        each.learn()
        each.repair()
        each.learn()
    assert all(torch.equal(each.shown, learners[0].shown) for each in learners)


def test_digits_that_are_held_out_are_not_learned():
    learners = Learners("pixels", Way(), 1e-3, [1], **FEW)
    assert max(int(batch.max()) for batch in learners.batches()) < FEW["digits"]
    assert learners.targets.shape[1] > FEW["digits"]


def test_a_grown_network_has_the_moments_of_the_old_one_and_new_units_that_no_old_one_reads():
    shapes = Architecture(units=4, inputs=3, outputs=2), Architecture(units=6, inputs=3, outputs=2)
    old, wider = (Stack(shape, [1], [0.01]) for shape in shapes)
    x, y = torch.randn(1, 9, 3), torch.randn(1, 9, 2)
    for _ in range(5):
        old.step((old(x) - y).square().mean((1, 2)))
    new = grown(old, wider)
    torch.testing.assert_close(new(x), old(x))
    for k, (rows, columns) in enumerate(old.shapes):
        assert torch.equal(new.view(new.second, k)[:, :rows, :columns], old.view(old.second, k))
    for layer in range(3):
        assert not bool(new.view(new.flat, 2 * layer + 2)[:, 4:, :4].any())
        assert bool(new.view(new.flat, 2 * layer)[:, :, 4:].any())


@pytest.mark.parametrize("study", ours.STUDIES, ids=lambda study: study.name)
def test_a_smoke_run_fills_every_cell(study, tmp_path):
    results = run(study, "smoke", store=tmp_path, jobs=1)
    assert all(len(results[cell]) == 2 for cell in results.cells)
