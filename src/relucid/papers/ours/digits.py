"""Small networks for handwritten digits: one damaged, repaired and trained further; and one with half the filters."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from relucid.data import Data, Split, as_data
from relucid.data.given import apart
from relucid.inspect import examine
from relucid.nn import CReLU
from relucid.studies.metrics import exact_share
from relucid.studies.run import Result
from relucid.studies.starts import Start, dead_units
from relucid.studies.task import RECIPE
from relucid.train import Machine, Recipe, fit

POOL = 750  # of the 1797 digits, for training and validation
HELD = 0.2  # of them, which are not trained on
FAR_TOO_LARGE = 0.3  # the rate that does the damage


def network(width: int = 1, crelu: bool = False) -> nn.Sequential:
    """Build four convolutions for digits, (N, 1, 8, 8) -> (N, 10); CReLU has half the filters and as many channels."""
    few = 2 if crelu else 1

    def unit(channels: int, filters: int) -> list[nn.Module]:
        return [nn.Conv2d(channels, filters // few, 3, padding=1), CReLU() if crelu else nn.ReLU()]

    a, b = 16 * width, 32 * width
    return nn.Sequential(
        *unit(1, a), *unit(a, a), nn.MaxPool2d(2), *unit(a, b), *unit(b, b),
        nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(b, 10),
    )  # fmt: skip


@lru_cache
def split(seed: int) -> Data[Split]:
    """The 750 digits that a seed trains on, and the others, to test on."""
    both = as_data("digits")
    parts = both.train, both.test
    whole = Split(torch.cat([part.inputs for part in parts]), torch.cat([part.targets for part in parts]))
    test, pool = apart(whole, POOL / len(whole), seed)
    return Data(pool, test, 10)


def damaged(seed: int, data: Data[Split], machine: Machine) -> nn.Module:
    """Damage a new network by three epochs at a far too large rate."""
    torch.manual_seed(seed)
    recipe = Recipe(epochs=3, lr=FAR_TOO_LARGE, batch_size=64, momentum=0.0, normalize=False)
    return fit(network(), data.train, recipe, seed=seed, machine=machine.within("damage")).network.cpu()


def run(config: Mapping[str, Any], machine: Machine) -> Result:
    """Repair a damaged network, or take a new one, and train it further as `relucid improve` does."""
    seed, data = config["seed"], split(config["seed"])
    fresh = config["network"] == "CReLU, half"
    hurt = network(crelu=True) if fresh else damaged(seed, data, machine)
    recipe = Recipe(**{**vars(RECIPE), "epochs": config["epochs"]})
    inputs, example = [data.train.inputs], data.train.inputs[:8]
    found = examine(hurt.eval(), example, inputs, measures=["activity"])
    begun = Start(**config["start"]).apply(hurt, example, inputs, seed)
    rest, _ = apart(data.train, HELD, seed)
    fitted = fit(begun.model, rest, recipe, seed=seed, machine=machine.within("on"))
    metrics = {
        "error": exact_share(fitted.evaluate(data.test)["error"], len(data.test)),
        "parameters": float(sum(parameter.numel() for parameter in begun.model.parameters())),
        "moved": 1e6 * begun.max_error,
        "dead": 100 * dead_units(found) / sum(layer.rectified.units for layer in found.layers),
    }
    return Result(metrics)
