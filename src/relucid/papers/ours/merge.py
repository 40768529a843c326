"""How many opposite filters of a trained network can be merged before its error rises, compared with pruning."""

import copy
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relucid.convert import fuse, to_crelu
from relucid.convert.refit import refit, refit_merged
from relucid.data import Split
from relucid.models import count_parameters, create
from relucid.papers.crelu.images import images
from relucid.report.figure import Figure
from relucid.studies import Claim, Column, Lower, Result, Runner, Scale, Store, Study, Table
from relucid.train import Fitted, Machine, Recipe, fit

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
EQUAL_SHARES = (0.25, 0.5)
LAYERS = tuple(f"conv{number}" for number in range(1, 7))
OPPOSITE = 2**0.5  # at this distance from opposite, filters are orthogonal
MERGE, MERGE_DATA, PRUNE, PRUNE_DATA = "merge", "merge, refitted", "pruning", "pruning, refitted"
Counts = Mapping[str, int]


def run(config: dict[str, Any], machine: Machine) -> Result:
    """Train a network, remove more and more of its filters, and test it each time."""
    plain, seen, fitted, test = _trained(config, machine)
    return Result(_curve(config["method"], plain, seen, fitted, test), fitted.history)


def run_equal(config: dict[str, Any], machine: Machine) -> Result:
    """Train a network, merge pairs, prune it to as many parameters, and test both."""
    plain, seen, fitted, test = _trained(config, machine)
    return Result(_at_equal_size(plain, seen, fitted, test), fitted.history)


def _trained(config: dict[str, Any], machine: Machine) -> tuple[nn.Module, Tensor, Fitted, Split]:
    """A trained network without norms, images to refit it on, how it was trained, and test images."""
    data = images(config["data"], config["train"], config["test"], config["seed"], config.get("pool", 1))
    torch.manual_seed(config["seed"])
    channels = data.train.inputs.shape[1]
    net = create(
        "vgg6", norm="batch", num_classes=data.classes or 0, in_channels=channels, width=config["width"]
    )
    recipe = Recipe(epochs=config["epochs"], lr=0.1, steps=(0.5, 0.75), weight_decay=5e-4, augment=("flip",))
    fitted = fit(net, data.train, recipe, seed=config["seed"], machine=machine)
    seen = fitted.moments.normalize(data.train.inputs[: config["images"]])
    return fuse(fitted.network.cpu().eval(), seen[:2]).model, seen, fitted, data.test


def _curve(method: str, net: nn.Module, images: Tensor, fitted: Fitted, test: Split) -> dict[str, float]:
    """Measure the test error and the number of parameters at every share of the pairs."""
    example, batches = images[:2], list(images.split(64)) if method in (MERGE_DATA, PRUNE_DATA) else None
    pairs = sum(_fewer(net, _merged(net, example)).values())
    metrics = {"pairs": float(pairs)}
    for share in SHARES:
        merged = _merged(net, example, round(share * pairs), batches if method == MERGE_DATA else None)
        if method in (PRUNE, PRUNE_DATA):
            counts = _fewer(net, merged)
            less, parameters = pruned(net, counts, batches), _parameters_left(net, counts)
        else:
            less, parameters = merged, count_parameters(merged)
        metrics |= {
            f"error at {share}": _error(less, fitted, test),
            f"parameters at {share}": parameters,
        }
    return metrics


def _at_equal_size(net: nn.Module, images: Tensor, fitted: Fitted, test: Split) -> dict[str, float]:
    """Measure the test error with a share of the pairs merged, and pruned to at least as many parameters."""
    pairs = sum(_fewer(net, _merged(net, images[:2])).values())
    metrics = {"error": _error(net, fitted, test), "parameters": float(count_parameters(net))}
    for share in EQUAL_SHARES:
        for merge, prune, data in (
            (MERGE, PRUNE, None),
            (MERGE_DATA, PRUNE_DATA, list(images.split(64))),
        ):
            merged = _merged(net, images[:2], round(share * pairs), data)
            counts = as_many(net, _fewer(net, merged), count_parameters(merged))
            metrics |= {
                f"{merge} at {share}": _error(merged, fitted, test),
                f"{prune} at {share}": _error(pruned(net, counts, data), fitted, test),
                f"parameters, {merge} at {share}": count_parameters(merged),
                f"parameters, {prune} at {share}": _parameters_left(net, counts),
            }
    return metrics


def as_many(net: nn.Module, counts: Counts, parameters: int) -> Counts:
    """The most filters to prune, in proportion to these counts, so that at least so many parameters are left."""
    total = sum(counts.values())
    for pruned in range(total, 0, -1):
        found = {name: count * pruned // total for name, count in counts.items()}
        if _parameters_left(net, found) >= parameters:
            return found
    return dict.fromkeys(counts, 0)


def _merged(
    net: nn.Module, example: Tensor, pairs: int | None = None, data: list[Tensor] | None = None
) -> nn.Module:
    """The network with its most opposite pairs merged, all of them by default; refitted if there are data."""
    options: dict[str, Any] = {"tolerance": OPPOSITE, "budget": torch.inf}
    if pairs is not None:
        options |= {"pairs": pairs}
    merged = to_crelu(net, example, LAYERS, "merge", **options)
    if pairs is not None and data is not None:
        refit_merged(net, merged, data)
    return merged.model


def _error(net: nn.Module, fitted: Fitted, test: Split) -> float:
    return Fitted(net, fitted.moments, {}, fitted.loss, torch.device("cpu")).evaluate(test)["error"]


def _fewer(net: nn.Module, less: nn.Module) -> Counts:
    """The number of filters that each layer has lost."""
    return {name: _filters(net, name) - _filters(less, name) for name in LAYERS}


def _filters(net: nn.Module, name: str) -> int:
    return len(_convolution(net, name).weight)


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


def _parameters_left(net: nn.Module, counts: Counts) -> int:
    """The number of parameters without pruned filters and the weights that read them."""
    total = count_parameters(net)
    for name, following in pairwise((*LAYERS, "fc7")):
        layer, reader = _convolution(net, name), net.get_submodule(following).weight
        assert isinstance(reader, Tensor)
        total -= counts[name] * (layer.weight[0].numel() + 1)
        kept = len(reader) - counts.get(following, 0)
        total -= counts[name] * kept * reader[0, 0].numel()
    return total


RUNNER = Runner("merge", run)


def remark(table: Table) -> str:
    """State the error of the whole network, and its rise with all pairs gone."""
    whole = table.cells[MERGE, label(0.0)].mean or 0.0
    rises = {row: (table.cells[row, label(1.0)].mean or 0.0) - whole for row in table.study.rows}
    ends = ", ".join(f"{row} {rise:+.1f}" for row, rise in rises.items())
    return f"The whole network has an error of {whole:.1f}%; with all pairs gone it rises, in points: {ends}."


def label(share: float) -> str:
    """The name of a share's column."""
    return f"{share:.0%} of pairs"


def figures(table: Table, store: Store) -> list[Figure]:
    """Draw the test error over the number of parameters left, one line per method."""
    import plotly.graph_objects as go

    plot = go.Figure()
    for row in table.study.rows:
        metrics = [run["metrics"] for run in table.behind(row)]
        if metrics:
            x, y = (
                [float(np.mean([each[f"{name} at {share}"] for each in metrics])) for share in SHARES]
                for name in ("parameters", "error")
            )
            plot.add_scatter(x=x, y=y, name=row, mode="lines+markers")
    plot.update_xaxes(title="parameters", autorange="reversed").update_yaxes(title="test error %")
    alt = f"Lines of the error over the number of parameters left, one for each of: {', '.join(table.study.rows)}."
    return [Figure("Error against parameters", alt, plot)]


SMOKE = Scale(
    {"data": "digits", "width": 0.0625, "train": 100, "test": 20, "epochs": 1, "images": 16},
    {"seed": [0]},
    seconds=4,
)
AT_EQUAL_SIZE = Study(
    name="merge-equal",
    title="Test error in percent of a VGG-6 on CIFAR-10, merged or pruned to as many parameters",
    run=Runner("merge-equal", run_equal),
    rows={"VGG-6": {}},
    columns={
        "whole": Column("error"),
        **{
            f"{method}, {label(share)}": Column(f"{method} at {share}")
            for share in EQUAL_SHARES
            for method in (MERGE, PRUNE, MERGE_DATA, PRUNE_DATA)
        },
    },
    scales={
        "cpu": Scale(
            {
                "data": "cifar10",
                "pool": 2,
                "width": 0.25,
                "train": None,
                "test": None,
                "epochs": 12,
                "images": 512,
            },
            {"seed": range(5)},
            seconds=450,
        ),
        "smoke": SMOKE,
    },
    paired=True,
    claims=(
        Claim(
            "merging at equal parameters",
            "Merging a quarter or half of the opposite pairs costs less than pruning to as many parameters.",
            tuple(
                Lower("VGG-6", columns=f"{merged}, {label(share)}", than_column=f"{cut}, {label(share)}")
                for merged, cut in ((MERGE, PRUNE), (MERGE_DATA, PRUNE_DATA))
                for share in EQUAL_SHARES
            ),
            code=("relucid.convert.to_crelu",),
            tests=("papers/ours/test_merge.py::test_pruning_leaves_as_many_parameters_as_merging",),
        ),
    ),
    protocol=(
        "As merge, but one network per seed for all columns, and pruned to at least as many parameters as merging "
        "leaves, each layer in proportion to the filters that merging takes from it. Cpu scale: all images, averaged "
        "over 2x2 pixels, a quarter of the width, 12 epochs, 512 images to refit on."
    ),
)
STUDIES = (
    AT_EQUAL_SIZE,
    Study(
        name="merge",
        title="Test error in percent of a VGG-6 on CIFAR-10 with opposite filters merged, or with filters pruned",
        run=RUNNER,
        rows={method: {"method": method} for method in (MERGE, MERGE_DATA, PRUNE, PRUNE_DATA)},
        columns={label(share): Column(f"error at {share}") for share in SHARES},
        scales={
            "full": Scale(
                {"data": "cifar10", "width": 1, "train": None, "test": None, "epochs": 100, "images": 1024}
            ),
            "small": Scale(
                {
                    "data": "cifar10",
                    "width": 0.125,
                    "train": 5000,
                    "test": 5000,
                    "epochs": 5,
                    "images": 128,
                },
                seconds=60,
            ),
            "smoke": SMOKE,
        },
        paired=True,
        claims=(
            Claim(
                "merging opposite filters",
                "Merging a quarter or half of the opposite pairs costs less than pruning as many filters.",
                tuple(
                    Lower(merged, than=cut, columns=(label(0.25), label(0.5)))
                    for merged, cut in ((MERGE, PRUNE), (MERGE_DATA, PRUNE_DATA))
                ),
                remark=remark,
                code=("relucid.convert.to_crelu",),
                tests=("convert/test_merge.py::test_exact_pairs_share_a_filter_and_outputs_stay_the_same",),
            ),
        ),
        figures=figures,
        protocol=(
            "Pairs: filters with negative cosine, matched most opposite first; at 100% nearly half of all filters are "
            "gone. Pruning removes as many filters from each layer, the shortest ones, and saves more parameters, "
            "because a merged filter is still read twice. Refitted: the following layers are fitted to their earlier "
            "outputs by least squares on training images, without further training. Batch norm is folded first."
        ),
    ),
)
