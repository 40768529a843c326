"""The result of a conversion: the network, what changed, how to save and load it."""

from __future__ import annotations

import functools
import inspect
import math
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, ParamSpec

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy

from relucid._torch import ConvNd, is_compiled, is_sharded
from relucid.convert._edits import check_groups, optimizers_of
from relucid.convert._restore import save
from relucid.convert._steps import Step
from relucid.convert._twins import Signature, apply_to
from relucid.convert.errors import ConversionError, UnchangedWarning
from relucid.nn import CReLU, GeometricLayer
from relucid.nn.tracing import no_autocast
from relucid.printing import Tabular, printable
from relucid.randomness import seeded

Status = Literal["changed", "kept", "refused"]
SINGLE = (nn.Linear, ConvNd, GeometricLayer, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)
SMOOTH = (nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.Mish, nn.ELU, nn.CELU, nn.SELU, nn.Softplus)


@dataclass(frozen=True)
class Change:
    """What became of one layer."""

    name: str
    kind: str  #: the class of the layer, or the operation
    status: Status
    reason: str  #: what was done, or why nothing was done


@dataclass(frozen=True)
class Conversion(Tabular):
    """A converted network, and how far it is from the original on the example."""

    model: nn.Module  #: of the original's class
    changes: tuple[Change, ...]  #: one per rectified or weighted layer of the original
    max_error: float  #: the largest difference of an output
    relative_error: float  #: the same, divided by the largest output
    gradient_error: float  #: the largest difference of a gradient at a layer, relative to it
    parameters: tuple[int, int]  #: before and after
    multiply_adds: tuple[int, int]  #: per example, before and after
    steps: tuple[Step, ...] = field(repr=False, default=())  #: what was done
    layer_error: float = 0.0  #: the largest difference of a layer's value, on the scale of its own rounding
    unchecked: tuple[str, ...] = ()  #: what could not be compared, and why
    original: Signature = field(repr=False, default_factory=dict)  #: what a twin looks like before

    @property
    def changed(self) -> bool:
        """Whether any layer is different."""
        return any(change.status == "changed" for change in self.changes)

    def rows(self) -> list[dict[str, str]]:
        """What became of each layer."""
        return [
            {"layer": c.name, "kind": c.kind, "status": c.status, "reason": c.reason} for c in self.changes
        ]

    def summary(self) -> str:
        """One line per layer, then the differences."""
        lines = [printable(f"{c.status}: {c.name} ({c.kind}): {c.reason}") for c in self.changes]
        return "\n".join([*lines, *self.notes()])

    def notes(self) -> list[str]:
        """The sizes and the differences."""
        lines = [] if self.changed else ["no layer was changed: the network is a copy of the original"]
        sizes = {"parameters": self.parameters, "multiply-adds per example": self.multiply_adds}
        lines += [f"{what}: {before:,} -> {after:,}" for what, (before, after) in sizes.items()]
        if math.isnan(self.max_error):
            lines.append("weights are new: train it from scratch")
        else:
            error, relative = self.max_error, self.relative_error
            lines.append(f"largest difference of the outputs: {error:.2g} ({relative:.2g} relative)")
        return [*lines, *(f"not checked: {what}" for what in self.unchecked)]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the network, as plain values."""
        return {
            "changes": [vars(change) for change in self.changes],
            "max_error": self.max_error,
            "relative_error": self.relative_error,
            "gradient_error": self.gradient_error,
            "parameters": list(self.parameters),
            "multiply_adds": list(self.multiply_adds),
            "layer_error": self.layer_error,
            "unchecked": list(self.unchecked),
        }

    def save(self, directory: str | Path) -> None:
        """Write the weights, and the steps that turn the original network into this one, into a directory.

        `load` repeats them on a new instance. The directory is created; all is written, or nothing.
        """
        save(self.model, directory)

    def apply_to(self, *twins: nn.Module, optimizer: Any = None) -> None:
        """Change twins of the network in the same way, in place, with the values that they have, without an example.

        A twin has the classes, the names and the shapes that the network had: a target network, a moving average (also
        within `torch.optim.swa_utils.AveragedModel`), a new instance. What was verified is where channels go, which
        does not depend on weights; every changed layer is compared, weight by weight, with the twin's own. Values that
        `revive` gave to units are not handed on.

        Args:
            twins: The networks; on an error none is changed.
            optimizer: One or several that train them.
        """
        apply_to(self.steps, self.original, twins, optimizers_of(optimizer))


Arguments = ParamSpec("Arguments")


def conversion(convert: Callable[Arguments, Conversion]) -> Callable[Arguments, Conversion]:
    """``convert`` with the random state preserved, without autocast, and with every error turned into one sentence.

    A call that does not fit its signature is a `TypeError`, as for any function.
    """
    signature = inspect.signature(convert)

    @functools.wraps(convert)
    def converted(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Conversion:
        given = signature.bind(*args, **kwargs).arguments
        if (tolerance := given.get("tolerance")) is not None and not tolerance >= 0:
            raise ConversionError(f"tolerance={tolerance} must be 0 or more")
        _check_network(given["model"])
        _check_optimizers(given.get("optimizer"), given["model"], given.get("inplace", False))
        with seeded(), torch.inference_mode(False), no_autocast(given["model"]):
            try:
                result = convert(*args, **kwargs)
            except ConversionError:
                raise
            except Exception as error:
                name, what = type(given["model"]).__name__, f"{type(error).__name__}: {error}"
                raise ConversionError(f"{name} cannot be converted{_where(error)}: {what}") from error
        if not result.changed and convert.__name__ != "fuse":
            name = type(given["model"]).__name__
            warnings.warn(
                f"{convert.__name__} changes no layer of {name}{_why_unchanged(result)}",
                UnchangedWarning,
                stacklevel=2,
            )
        return result

    return converted


def _why_unchanged(conversion: Conversion) -> str:
    """The reason to give for a conversion that changes nothing, in words."""
    for status in ("refused", "kept"):
        for change in conversion.changes:
            if change.status == status and (status == "refused" or "already" in change.reason):
                return f": {change.reason} ({change.name})"
    others = [
        f"{type(m).__name__} at {n}" for n, m in conversion.model.named_modules() if isinstance(m, SMOOTH)
    ]
    doubled = [name for name, m in conversion.model.named_modules() if isinstance(m, CReLU)]
    if doubled and not others:
        return f": it has both phases already (CReLU at {doubled[0]})"
    return f": it has no ReLU ({others[0]})" if others else ""


def _check_network(model: nn.Module) -> None:
    """Raise an error for what is not a network of modules that can be replaced."""
    name = type(model).__name__
    if isinstance(model, Mapping | list | tuple):
        raise ConversionError(
            f"a network is an nn.Module, not a {name}: convert networks that share layers as one, an nn.ModuleDict of "
            "them with call=, a function of it and the inputs that uses them all"
        )
    if not isinstance(model, nn.Module):
        raise ConversionError(f"a network is an nn.Module, not a {name}")
    if isinstance(model, torch.jit.ScriptModule):
        raise ConversionError(f"{name} is compiled by TorchScript; convert the network that it was made from")
    for part, module in model.named_modules():
        what = f"{part} of {name}" if part else "the network"
        if is_compiled(module):
            raise ConversionError(f"{what} is compiled; convert the original and compile the result")
        if isinstance(module, DistributedDataParallel | DataParallel) or is_sharded(module):
            raise ConversionError(
                f"{what} is a {type(module).__name__}, which knows the weights that there were: convert the network "
                "inside, on every process in the same way, and wrap the result"
            )
    parameters = list(model.parameters())
    if any(map(is_lazy, parameters)):
        raise ConversionError(
            f"{name} has lazy layers, whose weights have no shape; run it on an input first"
        )
    if any(p.is_meta for p in parameters):
        raise ConversionError(f"{name} has weights without values, on the meta device; load them first")
    if any(p.is_inference() for p in parameters):
        raise ConversionError(f"{name} was made in torch.inference_mode, so it cannot be trained")
    if isinstance(model, SINGLE):
        raise ConversionError(f"{name} is a single layer, not a network of layers; put it into nn.Sequential")


def _check_optimizers(given: Any, model: nn.Module, inplace: bool) -> None:
    """Refuse optimizers that cannot follow the conversion of this network."""
    for optimizer in optimizers_of(given):
        kind = type(optimizer).__name__
        if not hasattr(optimizer, "param_groups"):  # wrappers of other libraries have them
            raise ConversionError(
                f"optimizer must be one torch.optim.Optimizer or a list of them, not {kind}"
            )
        if not inplace:
            raise ConversionError(
                "an optimizer can only follow a network that is converted in place: inplace=True"
            )
        check_groups(optimizer)
        trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not any(id(p) in trained for p in model.parameters()):
            raise ConversionError("the optimizer trains no parameter of this network; give the one that does")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ConversionError(
                f"{kind} keeps one history of all weights, which cannot follow: convert without it, then make a new one"
            )


def _where(error: Exception) -> str:
    """The line of the user's code at which an error was raised, in words."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if "/torch/" not in frame.filename and "/relucid/" not in frame.filename:
            return f" (line {frame.lineno} of {Path(frame.filename).name})"
    return ""
