"""What no run shows: modules that were not changed are identical, what is frozen or tied stays so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import nn

from relucid._torch import hook_counts, parameter_hooks, registries
from relucid.convert._recipe import RECIPE
from relucid.convert.errors import ConversionError
from relucid.convert.modules import differing_attribute, equal


def check_structure(before: nn.Module, after: nn.Module, changed: Iterable[str], *, hooks: bool) -> None:
    """Compare what no run shows: modules that were not changed are identical, what is frozen or tied stays so.

    Args:
        before: The original.
        after: The converted network, which may share its memory.
        changed: The modules that steps have changed; whether these are right, the steps check.
        hooks: Whether hooks on the gradients of changed parameters would be lost.
    """
    faults = dict(_different_modules(before, after, set(changed)))
    for name, fault in _different_parameters(before, after, hooks):
        faults.setdefault(name, fault)
    if faults:
        raise ConversionError(next(iter(faults.values())), faults)


def _different_modules(before: nn.Module, after: nn.Module, changed: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the modules that differ, with what is wrong; of those that were changed, hooks and mode."""
    now = dict(after.named_modules())
    for name, module in before.named_modules():
        below = any(name.startswith(f"{parent}.") for parent in changed)
        other = now.get(name)
        if other is None:
            if not below:
                yield name, f"{name} is missing"
        elif module.training != other.training:
            yield name, f"{name} is in another mode"
        elif hook_counts(module) != hook_counts(other):
            yield name, f"{name} has other hooks"
        elif name not in changed and not below and (fault := _difference(module, other)):
            yield name, f"{name or 'the network'} {fault}"


def _difference(module: nn.Module, other: nn.Module) -> str:
    """How a module differs that nothing was to change; "" if it does not."""
    if not isinstance(other, type(module)):  # what returns both signs has a subclass
        return f"is a {type(other).__name__}, not a {type(module).__name__}"
    if key := differing_attribute(module, other):
        return f"has {key}={vars(other).get(key)}, not {vars(module)[key]}"
    for mine, others in list(zip(registries(module), registries(other), strict=True))[:2]:
        names = mine.keys() - {RECIPE}
        if names != others.keys() - {RECIPE} or not all(equal(mine[key], others[key]) for key in names):
            return "has other numbers"
    return ""


def _different_parameters(before: nn.Module, after: nn.Module, hooks: bool) -> Iterator[tuple[str, str]]:
    """Yield layers with what is trained in one network alone, or tied, or has a hook that would be lost."""
    now = dict(after.named_parameters(remove_duplicate=False))
    places: dict[nn.Parameter, list[str]] = {}
    for name, p in before.named_parameters(remove_duplicate=False):
        places.setdefault(p, []).append(name)
        if name in now and now[name].requires_grad != p.requires_grad:
            yield _layer(name), f"{name} is trained in one network and frozen in the other"
    for p, names in places.items():
        there = [now[name] for name in names if name in now]
        if any(q is not there[0] for q in there[1:]):
            yield _layer(names[0]), f"{' and '.join(names)} are one weight in one network alone"
        moved = any(name not in now or now[name].shape != p.shape for name in names)
        if hooks and moved and parameter_hooks(p):
            what = "has a hook on its gradient, which a copy would lose; inplace=True keeps it"
            yield _layer(names[0]), f"{names[0]} {what}"


def _layer(parameter: str) -> str:
    return parameter.rpartition(".")[0]
