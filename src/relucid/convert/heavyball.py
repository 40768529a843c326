"""Residual blocks to heavy ball: x_{k+1} = T(x_k) + beta1 x_k + beta2 x_{k-1} (structure Eq. 16)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from relucid.convert._edits import Edits
from relucid.convert._steps import Step
from relucid.convert.conversion import Conversion, conversion
from relucid.convert.errors import ConversionError
from relucid.convert.examples import Given
from relucid.convert.layout import ELEMENTWISE, LINEAR
from relucid.convert.modules import Momentum, mixed
from relucid.convert.network import Note, RecordedModel
from relucid.convert.search import converted, delivered
from relucid.inspect.execution import Call, Method, Node, Recording
from relucid.inspect.operations import BATCH_NORMS
from relucid.nn import rules
from relucid.nn.propagation import Propagation
from relucid.nn.rules import Residual

PASSED = LINEAR | ELEMENTWISE | BATCH_NORMS | {"native_layer_norm", "view", "_unsafe_view"}


@dataclass(frozen=True, eq=False)
class HeavyBall(Step):
    """Momentum: in a sequence of residual blocks beta_k (x_k - x_{k-1}), beta_k = 0; or by rule, in a `Propagation`."""

    steps: tuple[int, ...] = ()  #: the positions in a sequence of the blocks that get a beta

    def apply(self, edits: Edits) -> None:
        """Change the module."""
        module: Any = edits.model.get_submodule(self.name)
        parameters = list(module.parameters())
        like = next(iter(parameters), torch.empty(0))
        if isinstance(module, Propagation):
            depth = module.depth
            rule = rules.HeavyBall(beta1=[1.0] * depth, beta2=[0.0] * depth, learnable=True)
            new = Propagation(
                *(module.transforms, rule),
                first=module.get_submodule("0") if module.has_first else None,
                after=module.after,
                start=module.start,
                state_dtype=module.state_dtype,
                device=like.device,
                dtype=like.dtype,
            )
            edits.turn(self.name, new)
            edits.follow(parameters, list(new.parameters(recurse=False)), drop=False)
            return
        kind: Any = type(module)
        edits.set(module, "__class__", mixed(Momentum, kind))
        edits.set(module, "steps", self.steps)
        betas = nn.Parameter(torch.zeros(len(self.steps), dtype=like.dtype, device=like.device))
        edits.add(module, "betas", betas, beside=parameters)

    @torch.no_grad()
    def check(self, before: nn.Module, after: Any) -> float:
        """Compare the parameters, and what the new ones begin with."""
        mine, others = dict(before.named_parameters()), dict(after.named_parameters())
        new = [float(p.abs().max()) for name, p in others.items() if name not in mine and "beta2" not in name]
        starts = 1.0 if isinstance(after, Propagation) else 0.0
        same = all(name in others and torch.equal(p, others[name]) for name, p in mine.items())
        return 0.0 if same and all(value == starts for value in new) else math.inf


@conversion
def to_heavy_ball(
    model: nn.Module,
    example: Given,
    *,
    inplace: bool = False,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    call: Method | None = None,
    tolerance: float | None = None,
) -> Conversion:
    """The same network whose residual stages also add beta_k (x_k - x_{k-1}), with beta_k = 0, learnable.

    A stage is an ``nn.Sequential`` of blocks, each of which adds to its own input what it computes from it. From the
    second block in a row on that keeps its shape, the block's value gets that term. Training can so reach HB-Net
    (structure Eq. 11). A `Propagation` by the residual rule goes on by heavy ball with learned beta1 = 1 and
    beta2 = 0 (Eq. 16).

    Args:
        model: Any network with such stages; blocks that are called one by one, not as a sequence, stay as they are.
        example: Its input: a tensor or array, a tuple of positional or a mapping of keyword arguments, a loader or
            data set, of which the first batch is taken, or a list of several examples.
        inplace: Convert the network itself; by default a copy.
        optimizer: With ``inplace``, an optimizer to take along, which then trains the new parameters, too.
        call: How the network is used, if not through its forward: a method's name, or a function of the network and
            the example.
        tolerance: The largest relative difference of outputs; 1e-4 in float32, 1e-10 in float64 by default.

    >>> from relucid.models import create
    >>> conversion = to_heavy_ball(create("resnet20", num_classes=10), torch.randn(2, 3, 32, 32))
    >>> [name for name, _ in conversion.model.named_parameters() if "beta2" in name]
    ['layer1.beta2', 'layer2.beta2', 'layer3.beta2']
    """
    network = RecordedModel(model, example, call)
    stages = {name: steps for name in network.modules if (steps := _steps(network, name))}
    rules = [name for name, module in network.modules.items() if _is_residual_stage(module)]
    if not stages and not rules:
        raise ConversionError(
            f"{type(model).__name__} has no nn.Sequential with two residual blocks y = f(x) + x of one shape in a row, "
            "called as a whole; blocks in an nn.ModuleList, or called one by one, cannot be changed without their code"
        )
    notes: list[Note] = [
        (name, "changed", f"beta (x_k - x_(k-1)) at blocks {', '.join(map(str, steps))}")
        for name, steps in stages.items()
    ]
    notes += [(name, "changed", "beta1 and beta2 are learned") for name in rules]
    moves = [HeavyBall(name, positions) for name, positions in stages.items()] + [HeavyBall(n) for n in rules]
    changes = network.changes(notes, "only sums change", "only sums change")
    made = converted(network, moves, changes, tolerance=tolerance, inplace=inplace)
    return delivered(network, made, inplace, optimizer)


def _is_residual_stage(module: nn.Module) -> bool:
    return isinstance(module, Propagation) and isinstance(module.rule, Residual) and module.depth > 1


def _steps(network: RecordedModel, name: str) -> tuple[int, ...]:
    """The positions in a sequence of blocks that can get a beta; none if it is no stage."""
    module = network.modules[name]
    if not isinstance(module, nn.Sequential) or type(module).forward is not nn.Sequential.forward:
        return ()
    if name not in network.counts:
        return ()
    prefix = f"{name}." if name else ""
    blocks = [f"{prefix}{key}" for key, _ in module.named_children()]
    if len(blocks) != len(module):
        return ()  # a block stands in it twice
    residual = [all(_is_residual(r, block) for r in network.evaluated) for block in blocks]
    return tuple(k for k in range(1, len(blocks)) if residual[k] and residual[k - 1])


def _is_residual(recording: Recording, name: str) -> bool:
    """Whether a block adds to its own input what it computes from it, and keeps its shape."""
    calls = recording.calls_of.get(name, [])
    return bool(calls) and all(_adds(call) for call in calls)


def _adds(call: Call) -> bool:
    if len(call.inputs) != 1 or len(call.outputs) != 1:
        return False
    x, y = call.inputs[0], call.outputs[0]
    return x.shape == y.shape and _is_sum(y, x)


def _is_sum(y: Node, x: Node) -> bool:
    """Whether y is x plus what is computed from x, perhaps in several such steps, normalized or rectified."""
    while y is not x and len(y.upstream) == 1 and (y.op in PASSED or y.kind is not None) and y.op != "add":
        y = y.upstream[0]
    if y.op != "add" or len(y.upstream) != 2:
        return False
    for first, second in (y.upstream, y.upstream[::-1]):
        if first is x and depends(second, x):
            return True
        if first is not x and depends(second, first) and first.order > x.order and _is_sum(first, x):
            return True
    return False


def depends(node: Node, on: Node) -> bool:
    """Whether a value is computed from another; operations before that are not visited."""
    stack, seen = [node], {node}
    while stack:
        for before in stack.pop().upstream:
            if before is on:
                return True
            if before not in seen and before.order > on.order:
                seen.add(before)
                stack.append(before)
    return False
