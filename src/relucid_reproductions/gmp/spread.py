"""gmp Fig. 2, 3 and Section 3.2: how well the units' locations cover the data after training."""

import torch
from torch import Tensor

from relucid.experiments import Claim, Column, Scale, Study, higher, lower, runner
from relucid.inspect._boundary import boundary
from relucid_reproductions.gmp.problems import BEST_RATES, METHODS, OTHERS, PROBLEMS, StopOn, trials

DRAWS = 100  # of the uniform points
SHELL = (0.05, 0.95)  # quantiles of the inputs' distance from the origin
GAPS = ("Levy, gap", "Banana, gap")
SHARES = ("Boston, in the shell %", "Energy, in the shell %", "Wine, in the shell %", "Yacht, in the shell %")


@runner("gmp/spread")
def run(
    data: str, method: str, rate: float, stop_on: StopOn, splits: int, epochs: int | None
) -> dict[str, list[float]]:
    """Train one parameterization on all splits; measure where its locations are relative to the training inputs."""
    networks = trials(PROBLEMS[data], method, range(splits), stop_on)
    networks.learn([rate] * splits, epochs)
    gaps, shares = [], []
    for split, (network, part) in enumerate(zip(networks.networks, networks.train, strict=True)):
        units = boundary(network.get_submodule("fc1"), dict(network.named_children()).get("bn1"))
        locations, inputs = units.location[units.defined], part.inputs.double()
        gaps.append(gap(inputs, locations) / uniform_gap(inputs, len(locations), split))
        shares.append(share_in_the_shell(inputs, locations))
    return {"gap": gaps, "share": shares, "error": networks.errors().tolist()}


def gap(inputs: Tensor, locations: Tensor) -> float:
    """The mean distance from an input, (N, n), to the nearest location, (U, n): small if they cover the data.

    >>> gap(torch.tensor([[0.0], [4.0]]), torch.tensor([[1.0], [2.0]]))
    1.5
    """
    return float(torch.cdist(inputs, locations.to(inputs)).amin(1).mean())


def uniform_gap(inputs: Tensor, count: int, seed: int) -> float:
    """The mean gap of as many points drawn uniformly from the smallest box with all inputs in it."""
    low, high = inputs.amin(0), inputs.amax(0)
    chance = torch.Generator().manual_seed(seed)
    drawn = torch.rand(DRAWS, count, inputs.shape[1], generator=chance, dtype=inputs.dtype)
    return sum(gap(inputs, low + (high - low) * points) for points in drawn) / DRAWS


def share_in_the_shell(inputs: Tensor, locations: Tensor) -> float:
    """The percentage of locations that are as far from the origin as nine tenths of the inputs are."""
    low, high = inputs.norm(dim=1).quantile(torch.tensor(SHELL, dtype=inputs.dtype))
    distances = locations.norm(dim=1)
    return 100 * float(((low <= distances) & (distances <= high)).double().mean())


def column(label: str, metric: str) -> Column:
    """A measure on one problem, which the label begins with."""
    data = label.partition(",")[0].lower()
    settings = {"data": data, "stop_on": "train" if data == "levy" else "test"}
    if metric == "gap":
        return Column(metric, settings, digits=2)
    return Column(metric, settings, best="highest", digits=0)


spread = Study(
    "gmp/spread",
    "How well units' locations cover the data after training: gaps relative to uniform points, and the data's shell",
    run,
    rows={method: {"method": method, "rate": BEST_RATES[method]} for method in METHODS},
    columns={
        **{label: column(label, "gap") for label in GAPS},
        **{label: column(label, "share") for label in SHARES},
    },
    scales={
        "full": Scale({"splits": 10, "epochs": None}),
        "smoke": Scale({"splits": 2, "epochs": 2}),
    },
    repeat={},
    splits=tuple(METHODS),
    claims=[
        Claim(
            "Fig. 2, 3, spread",
            "Units' locations cover the data better under GmP than under the others: its gaps are smaller.",
            lower("GmP", OTHERS, GAPS),
        ),
        Claim(
            "Fig. 2, 3, spread and chance",
            "Under GmP they cover the data better than as many points drawn uniformly.",
            lower("GmP", 1.0, GAPS),
        ),
        Claim(
            "Section 3.2, thin shell",
            "On four UCI sets, more locations are in the shell of the data under GmP than under the others.",
            higher("GmP", OTHERS, SHARES),
        ),
    ],
)
STUDIES = [spread]
