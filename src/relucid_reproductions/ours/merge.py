"""How many opposite filters of a trained network can be merged before its error rises, compared with pruning."""

import copy
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from relucid.convert import Conversion, fuse
from relucid.convert.merge import merge as merge_pairs
from relucid.convert.network import Layers, RecordedModel
from relucid.convert.search import delivered
from relucid.data import Split
from relucid.experiments import Cell, Claim, Column, Contrast, Results, Scale, Study, lower, runner
from relucid.models import count_parameters, create
from relucid.randomness import seeded
from relucid.report.figure import Figure
from relucid.train import Fitted, Machine, Recipe, fit
from relucid_reproductions.images import images as load
from relucid_reproductions.ours._refit import refit, refit_merged

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
EQUAL_SHARES = (0.25, 0.5)
LAYERS = tuple(f"conv{number}" for number in range(1, 7))
MERGE, MERGE_DATA, PRUNE, PRUNE_DATA = "merge", "merge, refitted", "pruning", "pruning, refitted"
ALIKE = ((MERGE, PRUNE), (MERGE_DATA, PRUNE_DATA))
Counts = Mapping[str, int]


class Trained(NamedTuple):
    """A trained network without norms, and what it is tested and refitted on."""

    network: nn.Module
    images: Tensor
    fitted: Fitted
    test: Split

    def error(self, network: nn.Module) -> float:
        """The test error of a network made from it."""
        alone = Fitted(network, self.fitted.moments, {}, self.fitted.loss, torch.device("cpu"))
        return alone.evaluate(self.test)["error"]

    def merged(self, pairs: int | None = None, refitted: bool = False) -> nn.Module:
        """The network with its most opposite pairs merged, all of them by default; the rest refitted if asked for."""
        found = without_pairs(self.network, self.images[:2], LAYERS, tolerance=torch.inf, limit=pairs)
        if pairs is not None and refitted:
            refit_merged(self.network, found, self.batches)
        return found.model

    @property
    def batches(self) -> list[Tensor]:
        """The images to refit on."""
        return list(self.images.split(64))


def without_pairs(
    model: nn.Module, example: Tensor, layers: Layers, *, tolerance: float, limit: int | None
) -> Conversion:
    """A copy of a network with some pairs merged, the most opposite first."""
    with seeded():
        network = RecordedModel(model, example)
        return delivered(network, merge_pairs(network, layers, tolerance, limit=limit))


def trained(
    data: str, width: float, train: int | None, test: int | None, epochs: int, images: int, seed: int,
    pool: int = 1, machine: Machine | None = None,
) -> Trained:  # fmt: skip
    """Train a network and fold its norms."""
    parts = load(data, train, test, seed, pool)
    torch.manual_seed(seed)
    channels, classes = parts.train.inputs.shape[1], parts.classes or 0
    net = create("vgg6", norm="batch", num_classes=classes, in_channels=channels, width=width)
    recipe = Recipe(epochs=epochs, lr=0.1, steps=(0.5, 0.75), weight_decay=5e-4, augment=("flip",))
    fitted = fit(net, parts.train, recipe, seed=seed, machine=machine)
    seen = fitted.moments.normalize(parts.train.inputs[:images])
    return Trained(fuse(fitted.network.cpu().eval(), seen[:2]).model, seen, fitted, parts.test)


@runner("merge")
def run(method: str, machine: Machine | None = None, **config: Any) -> dict[str, Any]:
    """Train a network, remove more and more of its filters, and test it each time."""
    whole = trained(**config, machine=machine)
    net, refitted = whole.network, method in (MERGE_DATA, PRUNE_DATA)
    pairs = sum(fewer(net, whole.merged()).values())
    metrics: dict[str, Any] = {"pairs": float(pairs), "history": whole.fitted.history}
    for share in SHARES:
        less = whole.merged(round(share * pairs), method == MERGE_DATA)
        parameters = count_parameters(less)
        if method in (PRUNE, PRUNE_DATA):
            counts = fewer(net, less)
            less, parameters = pruned(net, counts, whole.batches if refitted else None), left(net, counts)
        metrics |= {f"error at {share}": whole.error(less), f"parameters at {share}": parameters}
    return metrics


@runner("merge-equal")
def run_equal(machine: Machine | None = None, **config: Any) -> dict[str, Any]:
    """Train a network, merge a share of its pairs, prune it to at least as many parameters, and test both."""
    whole = trained(**config, machine=machine)
    net = whole.network
    pairs = sum(fewer(net, whole.merged()).values())
    metrics: dict[str, Any] = {"error": whole.error(net), "parameters": float(count_parameters(net))}
    for share in EQUAL_SHARES:
        for merge, prune in ALIKE:
            refitted = merge == MERGE_DATA
            merged = whole.merged(round(share * pairs), refitted)
            counts = as_many(net, fewer(net, merged), count_parameters(merged))
            metrics |= {
                f"{merge} at {share}": whole.error(merged),
                f"{prune} at {share}": whole.error(pruned(net, counts, whole.batches if refitted else None)),
                f"parameters, {merge} at {share}": count_parameters(merged),
                f"parameters, {prune} at {share}": left(net, counts),
            }
    return {**metrics, "history": whole.fitted.history}


def as_many(net: nn.Module, counts: Counts, parameters: int) -> Counts:
    """The most filters to prune, in proportion to these counts, so that at least so many parameters are left."""
    total = sum(counts.values())
    for number in range(total, 0, -1):
        proportional = {name: count * number // total for name, count in counts.items()}
        if left(net, proportional) >= parameters:
            return proportional
    return dict.fromkeys(counts, 0)


def fewer(net: nn.Module, less: nn.Module) -> Counts:
    """The number of filters that each layer has lost."""
    return {
        name: len(_convolution(net, name).weight) - len(_convolution(less, name).weight) for name in LAYERS
    }


def _convolution(net: nn.Module, name: str) -> nn.Conv2d:
    layer = net.get_submodule(name)
    assert isinstance(layer, nn.Conv2d)
    return layer


def pruned(net: nn.Module, counts: Counts, data: list[Tensor] | None) -> nn.Module:
    """Set the shortest filters of each layer to zero in a copy of the network, and refit it if there are data.

    Args:
        net: the convolutions ``LAYERS`` one after the other, and an output layer.
        counts: how many filters to prune in each layer.
        data: batches on which every layer but the first is refitted to its output before pruning.
    """
    after = copy.deepcopy(net)
    lengths = {name: _convolution(net, name).weight.detach().flatten(1).norm(dim=1) for name in LAYERS}
    gone = {name: lengths[name].argsort()[: counts[name]] for name in LAYERS}

    def prune() -> None:
        for name, filters in gone.items():
            layer = _convolution(after, name)
            layer.weight.data[filters] = 0
            assert layer.bias is not None
            layer.bias.data[filters] = 0

    prune()
    for reader in (*LAYERS[1:], "fc7") if data is not None and any(counts.values()) else ():
        refit(net, after, [reader], data or [], {})
        prune()  # refitting must not restore pruned filters
    return after


def left(net: nn.Module, counts: Counts) -> int:
    """The number of parameters without pruned filters and the weights that read them."""
    total = count_parameters(net)
    for name, following in pairwise((*LAYERS, "fc7")):
        layer, reader = _convolution(net, name), net.get_submodule(following).weight
        assert isinstance(reader, Tensor)
        total -= counts[name] * (layer.weight[0].numel() + 1)
        kept = len(reader) - counts.get(following, 0)
        total -= counts[name] * kept * reader[0, 0].numel()
    return total


def label(share: float) -> str:
    """The name of a share's column."""
    return f"{share:.0%} of pairs"


def over_parameters(results: Results) -> list[Figure]:
    """Draw the test error over the number of parameters left, one line per method."""
    import plotly.graph_objects as go

    plot = go.Figure()
    for row in results.study.rows:
        x, y = (
            [results[row, label(share), f"{name} at {share}"].mean() for share in SHARES]
            for name in ("parameters", "error")
        )
        plot.add_scatter(x=x, y=y, name=row, mode="lines+markers")
    plot.update_xaxes(title="parameters", autorange="reversed").update_yaxes(title="test error %")
    alt = f"Lines of the error over the number of parameters left, one for each of: {', '.join(results.study.rows)}."
    return [Figure("Error against parameters", alt, plot)]


CIFAR = {"data": "cifar10", "train": None, "test": None}
SMOKE = Scale(
    {"data": "digits", "width": 0.0625, "train": 100, "test": 20, "epochs": 1, "images": 16}, {"seed": [0]}
)
EQUAL = Study(
    "merge-equal",
    "Test error in percent of a VGG-6 on CIFAR-10, merged or pruned to as many parameters",
    run_equal,
    {"VGG-6": {}},
    {"whole": Column("error")}
    | {
        f"{method}, {label(share)}": Column(f"{method} at {share}")
        for share in EQUAL_SHARES
        for methods in ALIKE
        for method in methods
    },
    {
        "cpu": Scale(CIFAR | {"pool": 2, "width": 0.25, "epochs": 12, "images": 512}, {"seed": range(5)}),
        "smoke": SMOKE,
    },
    claims=[
        Claim(
            "merging at equal parameters",
            "Merging a quarter or half of the opposite pairs costs less than pruning to as many parameters.",
            [
                Contrast(
                    Cell("VGG-6", f"{merge}, {label(share)}"),
                    Cell("VGG-6", f"{prune}, {label(share)}"),
                    "lower",
                )
                for merge, prune in ALIKE
                for share in EQUAL_SHARES
            ],
        )
    ],
)
CURVES = Study(
    "merge",
    "Test error in percent of a VGG-6 on CIFAR-10 with opposite filters merged, or with filters pruned",
    run,
    {method: {"method": method} for method in (MERGE, MERGE_DATA, PRUNE, PRUNE_DATA)},
    {label(share): Column(f"error at {share}") for share in SHARES},
    {
        "full": Scale(CIFAR | {"width": 1, "epochs": 100, "images": 1024}),
        "small": Scale(CIFAR | {"width": 0.125, "train": 5000, "test": 5000, "epochs": 5, "images": 128}),
        "smoke": SMOKE,
    },
    claims=[
        Claim(
            "merging opposite filters",
            "Merging a quarter or half of the opposite pairs costs less than pruning as many filters.",
            [
                contrast
                for merge, prune in ALIKE
                for contrast in lower(merge, prune, [*map(label, EQUAL_SHARES)])
            ],
        )
    ],
    figures=[over_parameters],
)
STUDIES = [EQUAL, CURVES]
