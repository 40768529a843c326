import torch
from torch import nn

from relucid.data import Split, holdout
from relucid.train import Recipe, fit
from relucid_reproductions.crelu.protocols import single


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def test_single_trains_on_everything_to_the_loss_that_was_best_for_a_share():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(60, 6, generator=generator)
    train = Split(inputs, (inputs.sum(1) + torch.randn(60, generator=generator) > 0).long())
    made = []

    def build():
        made.append(network())
        return made[-1]

    recipe = Recipe(epochs=8, batch_size=16, lr=0.05)
    fitted = single(build, train, recipe, share=0.25, seed=3)
    assert fitted.network is made[1]
    rest, held = holdout(train, 0.25, 3)
    course = fit(network(), rest, recipe, held, seed=3).history
    best = min(range(8), key=lambda epoch: course["val_error"][epoch])
    *before, last = fitted.history["train_loss"]
    assert last <= course["train_loss"][best] < min(before)
    assert fitted.history["val_error"] == course["val_error"]
