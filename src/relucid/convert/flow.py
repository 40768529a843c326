"""Where changed channels go in a network, and which layers read them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from relucid._torch import BatchNormNd, ConvNd, ConvTransposeNd
from relucid.convert.errors import ConversionError
from relucid.convert.layout import Layout, display_name, propagate
from relucid.inspect.execution import Call, Node, Recording
from relucid.inspect.operations import BATCH_NORMS
from relucid.nn import CReLU, GeometricLayer, GeometricLinear, MeanNorm

if TYPE_CHECKING:
    from relucid.convert.network import RecordedModel


@dataclass(eq=False)
class Flow:
    """Where changed channels go in one recording."""

    layouts: dict[Node, Layout] = field(default_factory=dict)
    reads: dict[str, Layout] = field(default_factory=dict)  #: by module: the new channels of its input
    carries: set[str] = field(default_factory=set)  #: depthwise convolutions that pass the new channels on
    unchanged: set[str] = field(default_factory=set)  #: modules that read channels as they were
    #: channels that something cannot take, why, and in which module
    stuck: list[tuple[Layout, str, str]] = field(default_factory=list)
    plain: frozenset[str] = frozenset()  #: geometric layers that will be plain ones

    def given(self, inputs: Iterable[Node]) -> dict[Node, Layout]:
        """The layouts of those inputs whose channels have changed."""
        layouts = {}
        for node in inputs:
            if node in self.layouts:
                layouts[node] = self.layouts[node]
            elif node.op == "overwritten":
                for layout in self.given(node.inputs).values():
                    self.stuck.append((layout, "part of it is overwritten", node.module))
        return layouts


def flow(
    recording: Recording,
    starts: Mapping[Node, Layout],
    modules: Mapping[str, nn.Module],
    plain: Collection[str] = (),
) -> Flow:
    """Follow the channels of ``starts`` through a recording, up to the layers that read them.

    A start whose input has changed already keeps what it is given.

    Args:
        recording: What the network executes.
        starts: Where channels change.
        modules: The modules of the network.
        plain: Geometric layers that will be plain ones, and so can read changed channels.
    """
    result = Flow(plain=frozenset(plain))
    opaque = {
        name for name, module in modules.items() if isinstance(module, CReLU | MeanNorm | GeometricLayer)
    }
    ends = {call.outputs[0].order: call for call in recording.calls if call.module in opaque and call.outputs}
    for node in recording.nodes:
        call = ends.get(node.order)
        if call is None and any(is_within(node.module, owner) for owner in opaque):
            continue
        value = node if call is None else call.outputs[0]
        given: dict[Node, Layout] = {}
        layout = None
        try:
            given = result.given(node.upstream if call is None else call.inputs)
            layout = _next(result, node, call, given, modules)
        except ConversionError as reason:
            at = node.module if call is None else call.module
            result.stuck += [(one, str(reason), at) for one in given.values()]
        if layout is None:
            layout = starts.get(value)
        if layout is not None:
            result.layouts[value] = layout
    for node in recording.outputs:
        if node in result.layouts:
            result.stuck.append((result.layouts[node], "the network returns it", ""))
    for name in result.unchanged & result.reads.keys():
        result.stuck.append((result.reads[name], f"{name} also reads channels that do not change", ""))
    return result


def follow(
    network: RecordedModel,
    starts: Callable[[Recording], Mapping[Node, Layout]],
    drop: Callable[[str, str], None],
    plain: Collection[str] = (),
    regroup: Callable[[str, set[int]], bool] = lambda name, groups: False,
) -> list[Flow]:
    """Follow the channels that change in every recording, without those that something cannot take.

    Args:
        network: What is executed.
        starts: Where channels change in a recording, of what has not been dropped.
        drop: Takes the name of what cannot change, and why.
        plain: As in `flow`.
        regroup: Takes the name of what convolutions with so many groups cannot read, and returns whether its channels
            now have another order.
    """
    while True:
        flows = [
            flow(recording, starts(recording), network.modules, plain) for recording in network.recordings
        ]
        dropped: dict[str, str] = {}
        groups: dict[str, set[int]] = {}
        for layout, reason, at in (stuck for one in flows for stuck in one.stuck):
            module = network.modules.get(at)
            for name in layout.sites:
                dropped[name] = reason
                groups.setdefault(name, set()).add(module.groups if isinstance(module, ConvNd) else 0)
        moved = [name for name, numbers in groups.items() if 0 not in numbers and regroup(name, numbers)]
        for name in moved:
            del dropped[name]
        reads: dict[str, Layout] = {}
        for name, layout in (read for one in flows for read in one.reads.items()):
            apart = name in reads and not reads[name].equals(layout)
            if apart or network.shared(name) or any(name in one.unchanged for one in flows):
                dropped |= dict.fromkeys(layout.sites, f"the weights of {name} are also used elsewhere")
            reads[name] = layout
        if not dropped and not moved:
            return flows
        for name, reason in dropped.items():
            drop(name, reason)


def is_within(name: str, owner: str) -> bool:
    """Whether a module is another or inside it.

    >>> is_within("a.b", "a"), is_within("ab", "a"), is_within("ab", "")
    (True, False, True)
    """
    return not owner or name == owner or name.startswith(f"{owner}.")


def _next(
    result: Flow,
    node: Node,
    call: Call | None,
    given: Mapping[Node, Layout],
    modules: Mapping[str, nn.Module],
) -> Layout | None:
    """The layout of a node's value; None if its channels are as they were."""
    name = node.module if call is None else call.module
    module = modules.get(name)
    reads = node.has_weight or node.op in BATCH_NORMS or call is not None
    if not given:
        if reads:
            result.unchanged.add(name)
        return None
    layout, *others = given.values()
    if not reads:
        return propagate(node, given)
    if others or module is None:
        raise ConversionError(f"{name or display_name(node)} mixes it with other values")
    passed = None
    if isinstance(module, BatchNormNd | MeanNorm):
        passed = _through_norm(module, layout, name)
    elif name not in result.plain and (
        not isinstance(module, nn.Linear | ConvNd) or not _is_own_weight(node, name)
    ):
        raise ConversionError(
            f"{name or type(module).__name__} reads it, and its weight is not that of a plain layer{_plainly(module)}"
        )
    elif layout.dim != 1 and not (
        isinstance(module, nn.Linear | GeometricLinear) and layout.dim == len(next(iter(given)).shape) - 1
    ):
        raise ConversionError(f"{name} reads it along another dimension")
    elif isinstance(module, ConvNd):
        passed = _through_groups(module, layout, name)
    if name in result.reads and not result.reads[name].equals(layout):
        raise ConversionError(f"{name} reads two values that change differently")
    result.reads[name] = layout
    if passed is not None and isinstance(module, ConvNd):
        result.carries.add(name)
    return passed


def _plainly(module: nn.Module) -> str:
    """How to make a weight plain that a parametrization, or a hook as that of pruning, computes; "" if none does."""
    if hasattr(module, "parametrizations"):
        return ": torch.nn.utils.parametrize.remove_parametrizations makes it one"
    if hasattr(module, "weight_orig") or hasattr(module, "weight_g"):
        return ": prune.remove, remove_weight_norm or remove_spectral_norm of torch.nn.utils makes it one"
    return ""


def _is_own_weight(node: Node, name: str) -> bool:
    """Whether a product's weight is the parameter ``name.weight`` itself, at most transposed."""
    weight = {f"{name}.weight"}
    return any(
        n.parameters == weight and (n.op == "parameter" or (n.op == "t" and n.inputs[0].op == "parameter"))
        for n in node.inputs
    )


def _through_norm(module: BatchNormNd | MeanNorm, layout: Layout, name: str) -> Layout:
    """The layout after a norm: a batch norm takes over all scales, a mean norm passes them on."""
    if layout.dim != 1:
        raise ConversionError(f"{name} normalizes it along another dimension")
    if layout.is_split:
        raise ConversionError(f"{name} would normalize both phases apart")
    if isinstance(module, MeanNorm) or layout.is_selection:
        return layout
    if module.weight is None:
        raise ConversionError(f"{name} has no weights that could take its scales")
    return replace(layout, scale=(layout.scale != 0).double())


def _through_groups(module: ConvNd, layout: Layout, name: str) -> Layout | None:
    """The layout after a depthwise convolution, which passes new channels on; None if the layer reads them all."""
    groups, size = module.groups, module.in_channels
    if groups == 1:
        return None
    if (
        groups == size
        and len(layout.origin) != size
        and layout.is_selection
        and not isinstance(module, ConvTransposeNd)
    ):
        times = module.out_channels // groups
        origin = (layout.origin.view(-1, 1) * times + torch.arange(times)).flatten()
        return replace(layout, origin=origin, scale=layout.scale.repeat_interleave(times))
    new = len(layout.origin)
    blocks = layout.origin.div(size // groups, rounding_mode="floor")
    if new % groups or not torch.equal(blocks, torch.arange(groups).repeat_interleave(new // groups)):
        raise ConversionError(f"{name} has {groups} groups, which cannot read it")
    return None
