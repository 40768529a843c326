"""Give dead units a boundary that passes through the data; nothing reads them yet, so that no output changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from relucid._torch import BatchNormNd, ConvTransposeNd
from relucid.convert._edits import Edits, optimizers_of, uninterrupted
from relucid.convert._recipe import applied
from relucid.convert._renew import Revive, drawn, entries_of
from relucid.convert._twins import signature
from relucid.convert._units import units_of
from relucid.convert.conversion import Conversion, conversion
from relucid.convert.copies import copied, reverting
from relucid.convert.difference import difference, tolerance_of
from relucid.convert.errors import ConversionError
from relucid.convert.flow import follow
from relucid.convert.layout import Layout, channel_dims
from relucid.convert.network import Note, RecordedModel
from relucid.convert.search import delivered, largest_valid_subset
from relucid.inspect._statistics import NEEDED
from relucid.inspect.batches import CalledParts, batches_for, inputs_in, joined
from relucid.inspect.execution import (
    Arguments,
    Given,
    Method,
    Node,
    Recording,
    called,
    in_mode,
    running,
    tensors_in,
)
from relucid.models import count_parameters
from relucid.nn import GeometricLayer, MeanNorm
from relucid.printing import counted
from relucid.randomness import seeded, users_own

SAMPLES = 4096  # values per unit from which its boundary is placed


@conversion
def revive(
    model: nn.Module,
    example: Any,
    data: Any = None,
    *,
    share: float = 0.5,
    inplace: bool = False,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    call: Method | None = None,
) -> Conversion:
    """The same network with its dead units alive again: no output changes on the data, and training can use them.

    A unit is dead if its ReLU has returned 0 for all data; if it has not on other inputs, outputs change there. It gets
    new incoming weights, drawn as its layer draws its first ones, and a boundary that passes through the data: its bias
    (or its norm's, or a geometric layer's offset) is such that a ``share`` of its values is above 0. The weights that
    read it become 0.

    Args:
        model: Any network. Its random draws come from the user's own random state, as those of new layers do.
        example: Its input.
        data: Inputs that show which units are dead, 35 or more, in any form that `relucid.metrics` takes; by default
            the example.
        share: Of the values of a revived unit, the part above 0.
        inplace: Convert the network itself; by default a copy. Parameters stay the same objects.
        optimizer: With ``inplace``, one or several optimizers to take along: their state for new entries is such that
            the first step of these is no longer than a living unit's.
        call: How the network is used, if not through its forward: a method's name, or a function of both.

    >>> net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    >>> _ = net[0].bias.data[:3].fill_(-100.0)
    >>> print(revive(net, torch.randn(64, 4)).changes[1].reason)
    3 dead units of 0 are alive
    """
    return _revive(model, example, data, share, inplace, optimizer, call)


def revived_first(
    model: nn.Module,
    convert: Callable[[nn.Module], Conversion],
    *,
    example: Any,
    data: Any,
    call: Method | None,
    inplace: bool,
    optimizer: Any,
) -> Conversion:
    """Revive the dead units of a network, and convert it then; in place both, or nothing."""
    first = _revive(model, example, data, 0.5, False, None, call)
    second = convert(first.model)
    alive = {change.name: change for change in first.changes if change.status != "kept"}
    changes = []
    for change in second.changes:
        before = alive.pop(change.name, None)
        status = "changed" if before and before.status == "changed" else change.status
        reason = change.reason if before is None else f"{before.reason}; {change.reason}"
        changes.append(replace(change, status=status, reason=reason))
    steps = first.steps + second.steps
    if inplace:
        with uninterrupted():
            applied(steps, model, optimizers_of(optimizer), others=True)
    return replace(
        second,
        model=model if inplace else second.model,
        changes=(*changes, *alive.values()),
        max_error=first.max_error + second.max_error,
        relative_error=first.relative_error + second.relative_error,
        parameters=(first.parameters[0], second.parameters[1]),
        steps=steps,
        original=first.original,
    )


def _revive(
    model: nn.Module,
    example: Any,
    data: Any,
    share: float,
    inplace: bool,
    optimizer: Any,
    call: Method | None,
) -> Conversion:
    if not 0 < share < 1:
        raise ConversionError(f"share={share} must be between 0 and 1: of a unit's values, the part above 0")
    network = RecordedModel(model, example, call)
    batches = _batches(model, example if data is None else data, call)
    if (count := sum(map(inputs_in, batches))) < NEEDED:
        raise ConversionError(
            f"{counted(count, 'input')} cannot show which units are dead: give data= with {NEEDED} or more"
        )
    dims = _dims(network)
    outputs, active = _run(network.copy, batches, dims, call)
    dead, reasons = _dead(network, active)

    def attempt(names: list[str], dropped: Mapping[str, str]) -> Conversion:
        chosen = {name: dead[name] for name in names}
        trial = copied(model)
        steps = _revived(trial, list(chosen.values()), batches, share, call)
        after, alive = _run(trial, batches, dims, call)
        moved, relative = difference(outputs, after)
        if not relative <= tolerance_of(outputs):
            raise ConversionError(f"outputs would move by {moved:.2g}")
        left_out = {name: _but(len(dead[name].units), why) for name, why in dropped.items()}
        notes = _notes(chosen, alive, reasons | left_out)
        size, nan = count_parameters(model), float("nan")
        changes = network.changes(notes, "reads no revived unit", "no unit is dead")
        products = network.multiply_adds(trial)
        return Conversion(
            *(trial, changes, moved, relative, nan, (size, size), products, tuple(steps)),
            original=signature(model),
        )

    found = largest_valid_subset(dead, attempt)
    return delivered(network, found, inplace, optimizer) if inplace else found


def _but(dead: int, why: str) -> str:
    return f"{counted(dead, 'dead unit')}, but {why}"


def _batches(model: nn.Module, data: Any, call: Method | None) -> list[Given]:
    """The data in batches; those of a `Watch` are what the network was called on."""
    if not isinstance(data, CalledParts):
        return list(batches_for(model, data, call))
    if "" not in data.batches:
        raise ConversionError(
            f"{type(model).__name__} itself was not called: give data=, and call= if need be"
        )
    return list(data.batches[""])


# What is dead


def _run(
    net: nn.Module, batches: Iterable[Given], dims: Mapping[str, int], call: Method | None
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """The outputs on all data, and which units of each ReLU, (units,), have returned something other than 0."""
    outputs: list[Tensor] = []
    active: dict[str, Tensor] = {}

    def observe(node: Node, value: Tensor, output: Tensor) -> None:
        if node.kind is not None and node.name in dims:
            units = (output != 0).movedim(dims[node.name], 0).flatten(1).any(1).cpu()
            active[node.name] = active.get(node.name, units) | units

    with reverting(net), running(net, call=call) as (run, _):
        for batch in batches:
            run(batch, None, observe)
    with reverting(net), in_mode(net, False), torch.no_grad():
        for batch in batches:
            with seeded():
                outputs += [x.clone() for x in tensors_in(called(net, batch, call)) if x.is_floating_point()]
    return outputs, active


def _dims(network: RecordedModel) -> dict[str, int]:
    """The dimension of the units, by ReLU."""
    pairs = (pair for recording in network.recordings for pair in channel_dims(recording.nodes).items())
    return {node.name: dim for node, dim in pairs if node.kind is not None}


def _dead(network: RecordedModel, active: Mapping[str, Tensor]) -> tuple[dict[str, Revive], dict[str, str]]:
    """The dead units of every ReLU, with the layers that make and read them; and why those of others stay."""
    dead: dict[str, Revive] = {}
    reasons: dict[str, str] = {}
    for recording in network.recordings:
        for node in (node for node in recording.nodes if node.name not in dead and _can_die(node)):
            alive = active.get(node.name)
            if alive is None or bool(alive.all()):
                continue
            units = (~alive).nonzero().flatten()
            try:
                name, *norms = _source(network, recording, node)
            except ConversionError as error:
                reasons[node.name] = _but(len(units), str(error))
            else:
                dead[node.name] = Revive(name, units, norms=tuple(norms))

    def drop(relu: str, why: str) -> None:
        reasons[relu] = _but(len(dead.pop(relu).units), why)

    plain = [name for name, module in network.modules.items() if isinstance(module, GeometricLayer)]
    while True:
        flows = follow(network, lambda recording: _starts(network, recording, dead), drop, plain)
        columns: dict[str, dict[str, Tensor]] = {relu: {} for relu in dead}
        obstacles: dict[str, str] = {}
        for name, layout in (read for one in flows for read in one.reads.items()):
            if why := _unread(network, name):
                obstacles |= dict.fromkeys(layout.sites, why)
            for relu in layout.sites:
                columns[relu][name] = (layout.scale == 0).nonzero().flatten()
        obstacles |= {relu: "no layer reads it" for relu in dead if not columns[relu]}
        if not obstacles:
            return {relu: replace(step, readers=columns[relu]) for relu, step in dead.items()}, reasons
        for relu, why in obstacles.items():
            drop(relu, why)


def _can_die(node: Node) -> bool:
    kind = node.kind
    return kind is not None and not kind.doubled and kind.below == 0 and kind.boundaries[0] == 0


def _source(network: RecordedModel, recording: Recording, node: Node) -> tuple[str, ...]:
    """The layer and norms of a ReLU's units, if they can be given other values."""
    if isinstance(network.modules.get(node.module), GeometricLayer):
        if network.shared(node.module) or network.counts[node.module] > 1:
            raise ConversionError(f"{node.module} is used more than once")
        return (node.module,)
    name, *norms = units_of(network, recording, node)
    layer: Any = network.modules[name]
    if isinstance(layer, ConvTransposeNd) and layer.groups > 1:
        raise ConversionError(f"{name} is a transposed convolution with groups")
    if len(norms) > 1 or not all(isinstance(network.modules[n], BatchNormNd | MeanNorm) for n in norms):
        raise ConversionError(f"{norms[0]} computes the units from each other")
    return (name, *norms)


def _starts(network: RecordedModel, recording: Recording, dead: Mapping[str, Revive]) -> dict[Node, Layout]:
    """Where the values of dead units begin, as channels that nobody reads."""
    dims, starts = channel_dims(recording.nodes), {}
    for node in recording.nodes:
        one = dead.get(node.name) if node.kind is not None else None
        if one is None:
            continue
        value = node
        if isinstance(network.modules.get(node.module), GeometricLayer):
            value = next(c.outputs[0] for c in recording.calls if c.module == node.module)
        scale = torch.ones(node.shape[dims[node]], dtype=torch.float64)
        scale[one.units] = 0.0
        starts[value] = Layout(dims[node], torch.arange(len(scale)), scale, frozenset([node.name]))
    return starts


def _unread(network: RecordedModel, name: str) -> str:
    """Why the weights of a reader cannot become zero; "" if they can."""
    module: Any = network.modules[name]
    if isinstance(module, BatchNormNd | MeanNorm):
        return f"{name} makes something other than 0 of their zeros"
    if network.shared(name) or network.counts[name] > 1:
        return f"the weights of {name} are used more than once"
    if isinstance(module, GeometricLayer):
        if module.scale is None:
            return f"{name} has no scale that could take a change of its weights"
        if getattr(module, "groups", 1) > 1:
            return f"{name} is a geometric convolution with groups"
    return ""


# New values


def _revived(
    trial: nn.Module, chosen: Sequence[Revive], batches: Sequence[Given], share: float, call: Method | None
) -> list[Revive]:
    """Give dead units of a copy new values; return steps that do the same to the network."""
    with Edits(trial) as edits:
        for step in chosen:
            with users_own():
                entries = drawn(trial, step.sources, step.units)
            scale = f"{step.name}.scale"
            if scale in entries:  # does not follow from a draw
                lengths = trial.get_parameter(scale).detach().abs()
                alive = torch.ones(len(lengths), dtype=torch.bool).index_fill_(0, step.units, False)
                if alive.any():
                    entries[scale] = lengths[alive].mean().expand_as(entries[scale])
            replace(step, entries=entries).apply(edits)
        _place(edits, chosen, batches, share, call)
    return [replace(step, entries=entries_of(trial, step.sources, step.units)) for step in chosen]


@torch.no_grad()
def _place(
    edits: Edits, chosen: Sequence[Revive], batches: Sequence[Given], share: float, call: Method | None
) -> None:
    """Place the boundaries in one run: a layer that runs later already sees the new values of earlier ones."""
    model, handles = edits.model, []
    for one in chosen:
        hook: Callable[..., Any] = partial(_placed, edits, one, share)
        handles.append(model.get_submodule(one.sources[-1]).register_forward_hook(hook, prepend=True))
    try:
        with in_mode(model, False), seeded():
            for batch in joined([b for b in batches if isinstance(b, Arguments)]):
                called(model, batch, call)
                break
    finally:
        for handle in handles:
            handle.remove()


def _placed(
    edits: Edits, one: Revive, share: float, module: Any, args: tuple[Any, ...], output: Tensor
) -> Any:
    """Place the boundaries of dead units, given the input of their layer or norm; return its new value."""
    units = one.units.to(output.device)
    if isinstance(
        module, GeometricLayer
    ):  # with a ReLU inside, its output does not show where the boundary is
        output = module._affine(args[0], module._weight(), None)
    dim = 1 if len(one.norms) or not hasattr(module, "in_features") else output.dim() - 1
    values = (args[0] if one.norms else output).movedim(dim, 0)[units].flatten(1).double()
    if one.norms:
        mean = values.mean(1)
        values = values - mean.unsqueeze(1)
        if module.running_mean is not None:
            edits.write(module.running_mean, units, mean)
        if isinstance(module, BatchNormNd):
            variance = values.square().mean(1)
            values = values / (variance + module.eps).sqrt().unsqueeze(1)
            if module.running_var is not None:
                edits.write(module.running_var, units, variance)
    values = values[:, :: max(1, values.shape[1] // SAMPLES)]
    shift = module.offset if isinstance(module, GeometricLayer) else module.bias
    if shift is not None:
        edits.write(shift, units, -values.quantile(1 - share, dim=1))
    elif not one.norms and not isinstance(module, GeometricLayer):
        # Without a bias, of two opposite rows the one that is active on more of the data.
        sign = torch.where((values > 0).double().mean(1) < 0.5, -1.0, 1.0).to(module.weight)
        at = (slice(None), units) if isinstance(module, ConvTransposeNd) else units
        rows = module.weight[at]
        shape = [1] * rows.dim()
        shape[int(isinstance(module, ConvTransposeNd))] = -1
        edits.write(module.weight, at, rows * sign.view(shape))
    return module.forward(*args)


def _notes(
    chosen: Mapping[str, Revive], active: Mapping[str, Tensor], reasons: Mapping[str, str]
) -> list[Note]:
    """What became of all dead units."""
    notes: list[Note] = [(relu, "refused", why) for relu, why in reasons.items()]
    for relu, step in chosen.items():
        still = int((~active[relu][step.units]).sum())
        revived = len(step.units) - still
        text = f"{counted(revived, 'dead unit')} of {step.name} {'is' if revived == 1 else 'are'} alive"
        if still:
            text += f"; {still} stay dead: what they read hardly varies, or no bias can move them"
        notes.append((relu, "changed" if revived else "refused", text))
        notes.append((step.name, "changed", f"{counted(len(step.units), 'unit')} drawn again"))
        notes += [(name, "changed", "weights of zero for revived units") for name in step.readers]
    return notes
