"""A study of your own: designs compared on your data, with a claim that is judged.

    relucid run examples/my_study.py               run it, and show the table
    relucid report examples/my_study.py            write its page

Replace the data and the network; what a run returns becomes the columns.
"""

import torch

from relucid.data import digits
from relucid.experiments import Claim, Column, Scale, Study, lower
from relucid.models import create
from relucid.train import Machine, Recipe, fit


def run(seed: int, epochs: int, machine: Machine, **design: str) -> dict[str, object]:
    """Train one network and test it once; a run that is killed goes on where its last epoch ended."""
    data = digits()
    torch.manual_seed(seed)
    network = create("mlp", num_classes=10, in_channels=64, hidden=(50,), **design)
    network = torch.nn.Sequential(torch.nn.Flatten(), network)
    fitted = fit(network, data.train, Recipe(epochs=epochs, lr=0.05), seed=seed, machine=machine)
    return {"error": fitted.evaluate(data.test)["error"], "history": fitted.history}


study = Study(
    "my-study",
    "Activations and weights of a small network on handwritten digits",
    run,
    rows={"ReLU": {}, "CReLU": {"activation": "crelu"}, "geometric": {"weights": "geometric"}},
    columns={"test error %": Column("error")},
    scales={"small": Scale({"epochs": 20}), "smoke": Scale({"epochs": 1}, {"seed": [0]})},
    claims=[Claim("error", "CReLU has a lower error than ReLU.", lower("CReLU", "ReLU", "test error %"))],
)
