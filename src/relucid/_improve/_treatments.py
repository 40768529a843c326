"""Treatments of a network before further training: none, a conversion, dead units or all parameters redrawn."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from relucid._torch import BatchNormNd, ConvNd, ConvTransposeNd
from relucid.conversions import CONVERSIONS
from relucid.convert import Conversion, ConversionError, UnchangedWarning
from relucid.inspect import Examination, examine
from relucid.inspect.examination import ExaminedLayer

MERGE = {"tolerance": 0.01}  # then all filters that count as paired, cosines of -0.5 and less, are tried


@dataclass(frozen=True)
class Treatment:
    """How a network is changed before further training; as plain data, part of a run's configuration.

    Args:
        convert: a name in `relucid.conversions.IMPROVING`; None to leave the network as it is.
        layers: the names of the layers to convert; None for all.
        draw: what to redraw afterwards: None, "dead" units, or "all" parameters.
    """

    convert: str | None = None
    layers: Sequence[str] | None = None
    draw: str | None = None

    def apply(self, network: nn.Module, example: Any, data: Iterable[Any], seed: int = 0) -> Conversion:
        """A changed copy of a network, and how it was converted.

        Args:
            network: the original, which is left as it is.
            example: inputs on which conversions are checked.
            data: batches of inputs that decide which units are dead.
            seed: the seed of redrawn parameters.

        >>> net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
        >>> Treatment(convert="crelu").apply(net, torch.randn(8, 4), []).model[2].in_features
        12
        """
        if self.convert is None:
            conversion = Conversion(deepcopy(network), (), 0.0, 0.0, 0.0, (0, 0), (0, 0))
        else:
            conversion = self._converted(network, example)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if self.draw == "all":
                redraw(conversion.model)
            elif self.draw == "dead":
                redraw_dead(conversion.model, examine(conversion.model, example, data, measures=["activity"]))
        return conversion

    def _converted(self, network: nn.Module, example: Any) -> Conversion:
        """The conversion of a network in evaluation; refuse one that changes nothing."""
        chosen: dict[str, Any] = {} if self.layers is None else {"layers": list(self.layers)}
        convert = CONVERSIONS[str(self.convert)].call(**(MERGE if self.convert == "merge" else {}))
        with warnings.catch_warnings():
            warnings.simplefilter("error", UnchangedWarning)
            try:
                conversion: Conversion = convert(network, example, **chosen)
            except UnchangedWarning as unchanged:
                raise ConversionError(str(unchanged)) from None
        return conversion


def redraw(network: nn.Module) -> None:
    """Redraw all parameters as their layers initialize them.

    A layer without `reset_parameters` gets normally distributed ones, with the mean and deviation they had.
    """
    for module in network.modules():
        parameters = [*module.parameters(recurse=False)]
        if callable(reset := getattr(module, "reset_parameters", None)):
            reset()
        elif parameters:
            with torch.no_grad():
                for parameter in parameters:
                    spread = parameter.std(correction=0) if parameter.numel() else 0.0
                    parameter.copy_(torch.randn_like(parameter) * spread + parameter.mean())


def redraw_dead(network: nn.Module, examination: Examination) -> None:
    """Redraw the weights that feed dead units as their layers initialize them, and reset the norms in between."""
    modules = dict(network.named_modules())
    for layer in examination.layers:
        dead = _dead(layer)
        if not bool(dead.any()):
            continue
        for module, fresh in _redrawn(layer, modules):
            with torch.no_grad():
                for name, value in _entries(module, len(dead)):
                    value[dead] = getattr(fresh, name)[dead]


def _redrawn(layer: ExaminedLayer, modules: Mapping[str, nn.Module]) -> Iterator[tuple[Any, Any]]:
    """The weights and batch norms that feed a layer's units, each with a redrawn copy."""
    names = [name for source in layer.rectified.sources for name in (source.module, *source.through)]
    for name in names:
        module = modules.get(name)
        plain = isinstance(module, nn.Linear | ConvNd | BatchNormNd)
        if module is not None and plain and not isinstance(module, ConvTransposeNd):
            fresh: Any = deepcopy(module)
            fresh.reset_parameters()
            yield module, fresh


def _entries(module: nn.Module, units: int) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a layer that have one entry per unit."""
    for name, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
        if value.dim() and len(value) == units:
            yield name, value


def _dead(layer: ExaminedLayer) -> Tensor:
    """Which units are dead, (units,); none if too few inputs were seen to judge."""
    kinds = {} if layer.activity is None else layer.activity.kinds()
    return kinds.get("dead", torch.zeros(layer.rectified.units, dtype=torch.bool))
