"""A study of your own: designs compared on your model and your data.

    relucid run examples/my_study.py --dry-run     what there is to do
    relucid run examples/my_study.py               do it, and show the table
    relucid show examples/my_study.py --format markdown

Replace the data and the network; what a run returns becomes the columns.
"""

from typing import Any

import torch

from relucid.data import digits
from relucid.models import create
from relucid.studies import Column, Result, Scale, Study
from relucid.train import Machine, Recipe, fit


def run(config: dict[str, Any], machine: Machine) -> Result:
    """Train one network and test it once; a run that is killed goes on where its last epoch ended."""
    data = digits()
    torch.manual_seed(config["seed"])
    inputs = data.train.inputs[0].numel()
    network = torch.nn.Sequential(
        torch.nn.Flatten(), create("mlp", num_classes=10, in_channels=inputs, **config["design"])
    )
    recipe = Recipe(epochs=config["epochs"], lr=0.05, steps=(0.5, 0.75), weight_decay=1e-4)
    fitted = fit(network, data.train, recipe, seed=config["seed"], machine=machine)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return Result({"error": fitted.evaluate(data.test)["error"], "parameters": parameters}, fitted.history)


study = Study(
    name="my-study",
    title="Activations and weights of a small network on handwritten digits",
    run=run,
    rows={
        "ReLU": {"design": {}},
        "CReLU, half the units": {"design": {"activation": "crelu", "hidden": [50]}},
        "geometric": {"design": {"weights": "geometric"}},
    },
    columns={
        "test error %": Column("error"),
        "parameters": Column("parameters", best=None, digits=0),
    },
    scales={
        "full": Scale({"epochs": 60}, {"seed": range(10)}),
        "small": Scale({"epochs": 20}),
        "smoke": Scale({"epochs": 1}, {"seed": [0]}),
    },
    baseline="ReLU",
    protocol="The recipe was fixed beforehand; the test part is looked at once a run.",
)
