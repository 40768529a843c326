"""What a network computes in one run: values of its layers, gradients, outputs; with dropouts that drop nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from relucid._torch import registries, tree_leaves, tree_map_only
from relucid.convert._recipe import RECIPE
from relucid.convert.copies import reverting, tensors_of
from relucid.convert.examples import Example
from relucid.inspect.execution import Method, function_of, in_mode
from relucid.nn import GeometricLayer
from relucid.randomness import seeded

Key = tuple[str, int]  # a module, and which of its calls
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


@dataclass
class Tape:
    """What a network computes in one run: its outputs, what its layers return, and the gradients that come back."""

    values: dict[Key, Tensor] = field(default_factory=dict)
    gradients: dict[Key, Tensor] = field(default_factory=dict)
    outputs: list[Tensor] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)  #: outputs that are numbers or words
    inputs: list[Tensor | None] = field(default_factory=list)  #: gradients of the inputs
    buffers: dict[str, Tensor] = field(default_factory=dict)  #: after the run
    #: of a converted network, by layer: how far its values and gradients are from the original's, and how it fails
    apart: dict[str, float] = field(default_factory=dict)
    gradients_apart: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def is_finite(self) -> bool:
        """Whether outputs can be compared: some of the real or complex numbers are finite, or there are none."""
        real = [x for x in self.outputs if x.is_floating_point() or x.is_complex()]
        return any(bool(x.isfinite().any()) for x in real) or not real


def recorded(
    model: nn.Module,
    example: Example,
    call: Method | None,
    *,
    training: bool,
    backward: bool,
    layers: bool = True,
    also: Iterable[str] = (),
    without: Collection[str] = (),
) -> Tape:
    """Run a network, which is a copy.

    Args:
        model: The network.
        example: Its input.
        call: How it is used.
        training: In which mode.
        backward: Whether to compute gradients.
        layers: Whether to keep what its layers return.
        also: Further modules to keep the values of.
        without: Modules whose values nothing will be compared with.
    """
    tape = Tape()
    wanted = {name: module for name, module in points(model) if name not in without} if layers else {}
    wanted |= {name: model.get_submodule(name) for name in also} if layers else {}
    with shown(wanted, lambda key, module, args, value: _keep(tape, key, value, backward)):
        run(model, example, call, training, tape, backward=backward)
    return tape


def points(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules that compute with tensors of their own."""
    for name, module in model.named_modules():
        parameters, buffers, _ = registries(module)
        if name and (parameters or any(b is not None for key, b in buffers.items() if key != RECIPE)):
            yield name, module


def _keep(tape: Tape, key: Key, value: Tensor, backward: bool) -> Tensor | None:
    tape.values[key] = value.detach().clone()  # a ReLU in place may overwrite it
    forced = None
    if backward and torch.is_grad_enabled() and not value.requires_grad:
        value = forced = value.detach().requires_grad_() * 1
    if value.requires_grad:
        value.register_hook(lambda g: tape.gradients.__setitem__(key, g))
    return forced


@contextmanager
def shown(modules: Mapping[str, nn.Module], see: Callable[..., Tensor | None]) -> Iterator[None]:
    """Show what every module returns; ``see`` may replace it. A copy is hooked, not the user's network."""
    count: Counter[str] = Counter()

    def seen(name: str, module: nn.Module, args: Any, value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            count[name] += 1
            return see((name, count[name]), module, args, value)
        return None

    with ExitStack() as stack:
        for name, module in modules.items():
            if not isinstance(module, torch.jit.ScriptModule):
                stack.enter_context(module.register_forward_hook(partial(seen, name)))
        yield


def run(
    model: nn.Module,
    example: Example,
    call: Method | None,
    training: bool,
    tape: Tape,
    *,
    backward: bool,
) -> None:
    """Run a network with dropouts that drop nothing; compute the gradients of a fixed sum of its outputs."""
    example = tree_map_only(Tensor, lambda x: x.detach().clone(), example)
    leaves = [x for x in tree_leaves(example) if isinstance(x, Tensor) and x.is_floating_point()]
    for x in leaves:
        x.requires_grad_(backward)
    args, kwargs = tree_map_only(Tensor, lambda x: x * 1 if x.requires_grad else x, example)
    given = {id(x) for x in tree_leaves((args, kwargs))} | {id(module) for module in model.modules()}
    gradients = torch.set_grad_enabled(backward)
    with reverting(model), in_mode(model, training), seeded(), gradients, _Halving():
        for module in model.modules():
            if isinstance(module, DROPOUTS):  # a checkpoint repeats the forward pass where no mode is seen
                module.training = False
            if isinstance(
                module, GeometricLayer
            ):  # in evaluation, each would keep its weight for the next time
                module.training = True
        answer = function_of(model, call)(*args, **kwargs)
        outputs = list(tensors_of((answer, args, kwargs), given))
        tape.outputs = [x.detach() for x in outputs]
        total = _total(outputs) if backward else None
        if total is not None:
            try:
                tape.inputs = list(torch.autograd.grad(total, leaves, allow_unused=True)) if leaves else []
                if not leaves:
                    total.backward()
            except RuntimeError:  # a network for inference only
                tape.inputs = []
        named = [(name, b) for name, b in model.named_buffers() if name.rpartition(".")[2] != RECIPE]
        tape.buffers = {name: b.detach() for name, b in named}
    tape.others = [x for x in tree_leaves(answer) if isinstance(x, int | float | str)]


def _total(outputs: list[Tensor]) -> Tensor | None:
    """A fixed random combination of all outputs; None if it has no gradients."""
    generator = torch.Generator().manual_seed(0)
    total = None
    for x in outputs:
        if x.requires_grad:
            x = x.abs() if x.is_complex() else x
            factors = torch.randn(x.shape, generator=generator, dtype=torch.float64)
            term = (x * factors.to(x)).sum()
            total = term if total is None else total + term.to(total)
    return total if total is not None and total.requires_grad else None


FUNCTIONS: set[Any] = {
    *(F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout),
    *(torch.dropout, torch.alpha_dropout, torch.feature_dropout, torch.dropout_),
}
# What `scaled_dot_product_attention` takes by position after query, key, value and mask.
AFTER_MASK = ("dropout_p", "is_causal")


class _Halving(TorchFunctionMode):
    """Makes functional dropouts halve everything: with other channels, a network would drop other entries."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in FUNCTIONS:
            given = dict(zip(("input", "p", "train"), args, strict=False)) | kwargs
            x = given["input"]
            # Functions in `torch` say `train`; those in `torch.nn.functional` arrive with `training` by keyword.
            if not given.get("training", given.get("train")):
                return x
            return x.mul_(0.5) if given.get("inplace", func is torch.dropout_) else x * 0.5
        if func is F.scaled_dot_product_attention:
            kwargs = dict(zip(AFTER_MASK, args[4:], strict=False)) | kwargs | {"dropout_p": 0.0}
            args = args[:4]
        return func(*args, **kwargs)
