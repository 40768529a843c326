"""Continual backprop (Dohare et al. 2024): at every step, a few mature units of least utility are drawn again."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from relucid._torch import is_functorch_wrapped_tensor
from relucid.inspect.execution import Arguments, Method, function_of, tensors_in
from relucid.inspect.watch import detached, inner_optimizer, original
from relucid.remedies._effect import NAN, Effect, RemedyError, check_network, moved_by
from relucid.remedies._state import Optimizers, optimizers_in
from relucid.remedies._units import HiddenLayer, draw, hidden_layers


def contribution(mean_size: Tensor, outgoing: Tensor) -> Tensor:
    """The contribution |h_i| sum_k |w_ik| of units with mean sizes (units,) and outgoing weights (outputs, units).

    >>> contribution(torch.tensor([2.0, 1.0]), torch.tensor([[1.0, -1.0], [-1.0, 3.0]]))
    tensor([4., 4.])
    """
    return mean_size * outgoing.abs().sum(0)


@dataclass
class _Reader:
    """A layer that reads units: which of its inputs are whose, and what they were since the last step."""

    module: Any
    unit: Tensor  #: (inputs,): the unit, or -1
    size: Tensor  #: (inputs,): sum of mean sizes
    value: Tensor  #: (inputs,): sum of means
    average: Tensor  #: (inputs,): decaying average of the means
    calls: int = 0

    def see(self, x: Tensor) -> None:
        """Add the inputs of a call."""
        dim = (
            x.dim() - 1 if isinstance(self.module, nn.Linear) else x.dim() - 1 - len(self.module.kernel_size)
        )
        rows = x.detach().movedim(dim, 0).flatten(1)
        if len(rows) != len(self.unit):  # converted meanwhile, which the next step will notice
            return
        self.size += rows.abs().mean(1)
        self.value += rows.mean(1)
        self.calls += 1


@dataclass
class _Layer:
    """The utility and age of the units of one layer."""

    layer: HiddenLayer
    readers: dict[str, _Reader]
    utility: Tensor  #: (units,): decaying average of contributions
    age: Tensor  #: (units,): steps since they were drawn
    due: float = 0.0  #: units that should have been replaced so far, less those that were


class ContinualBackprop:
    r"""Continual backprop (Dohare et al., Nature 2024) for a network of any form, after every step of its optimizer.

    With h_i the output of unit i and w_ik its outgoing weights, its utility is the decaying average

        u_i <- decay u_i + (1 - decay) |h_i| sum_k |w_ik|,

    corrected for its age as Adam's moments are. At every step a share ``rate`` of the units of each layer that are
    older than ``maturity`` steps, those of least utility, get new incoming weights and outgoing weights of 0; the
    biases of the layers that read them take over their mean contribution, as in the authors' code. Layers and their
    readers are found by running the network, through norms, pooling and flatten; ``refused`` says which cannot be.

    Args:
        model: Any network.
        rate: Share of mature units to replace per step, such as 1e-4.
        maturity: Steps for which a unit is left alone.
        decay: Of the averages.
        example: An input that shows how the network is made; by default that of its first call.
        call: How the network is used, if not through its forward: a method's name, or a function of both.

    >>> net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> optimizer = torch.optim.Adam(net.parameters())
    >>> recycle = ContinualBackprop(net, rate=0.01, maturity=10).attach(optimizer)
    >>> for _ in range(100):
    ...     net(torch.randn(8, 4)).square().mean().backward()
    ...     optimizer.step()
    >>> recycle.replaced
    Counter({'0': 13})
    """

    def __init__(
        self,
        model: nn.Module,
        rate: float,
        maturity: int,
        *,
        decay: float = 0.99,
        example: Any = None,
        call: Method | None = None,
    ) -> None:
        check_network(model)
        if not 0 <= rate <= 1 or maturity < 0 or not 0 <= decay < 1:
            raise RemedyError(
                f"rate is a share from 0 to 1, maturity at least 0 steps, decay from 0 to below 1; got {rate}, "
                f"{maturity} and {decay}"
            )
        self.model = original(model)
        if example is None:
            try:
                function_of(self.model, None)
            except TypeError as error:
                raise RemedyError(f"{error}; and give an example=") from None
        self.rate, self.maturity, self.decay, self.call = rate, maturity, decay, call
        self.replaced: Counter[str] = Counter()  #: how many units have been drawn again, by layer
        self.refused: dict[str, str] = {}  #: layers whose units cannot be, and why
        self._optimizers: list[Any] = []
        self._handles: list[RemovableHandle] = []
        self._first: list[RemovableHandle] = []
        self._attached: list[RemovableHandle] = []
        self._layers: list[_Layer] = []
        self._state: Mapping[str, Any] = {}
        if example is None:
            self._await_call()
        else:
            self._prepare(example)

    def attach(self, optimizer: Optimizers) -> Self:
        """Act after every step of the optimizer, the first of several, and take the state of all along."""
        self._optimizers = optimizers_in(optimizer, self.model)
        first = inner_optimizer(self._optimizers[0])
        self._attached.append(first.register_step_post_hook(self._stepped))
        return self

    def detach(self) -> None:
        """Stop."""
        for handle in (*self._handles, *self._first, *self._attached):
            handle.remove()

    @property
    def utility(self) -> dict[str, Tensor]:
        """The utility of every unit, by layer, corrected for its age."""
        return {_name(tracked): self._corrected(tracked.utility, tracked.age) for tracked in self._layers}

    @property
    def age(self) -> dict[str, Tensor]:
        """For how many steps every unit has lived, by layer."""
        return {_name(tracked): tracked.age.clone() for tracked in self._layers}

    @torch.no_grad()
    def step(self, inputs: Any = None) -> Effect:
        """Update utilities with what was seen since the last step, and replace the units that are due.

        Args:
            inputs: Inputs on which to measure by how much outputs move, which takes two more passes.
        """
        if not self._is_current():
            self._await_call()
        if inputs is None:
            return Effect("continual backprop", self._replace(), NAN, self.refused)
        with moved_by(self.model, inputs, self.call) as moved:
            return Effect("continual backprop", self._replace(), moved(), self.refused)

    def state_dict(self) -> dict[str, Any]:
        """What to keep in a checkpoint."""
        return {
            _name(tracked): {"utility": tracked.utility, "age": tracked.age, "due": tracked.due}
            | {"averages": {name: reader.average for name, reader in tracked.readers.items()}}
            for tracked in self._layers
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._state = state
        self._restore()

    def _restore(self) -> None:
        for tracked in self._layers:
            known = self._state.get(_name(tracked))
            if known is not None and known["age"].shape == tracked.age.shape:
                tracked.utility, tracked.age, tracked.due = (
                    known["utility"].clone(),
                    known["age"].clone(),
                    known["due"],
                )
                for name, average in known["averages"].items():
                    tracked.readers[name].average = average.clone()

    def _stepped(self, *_: object) -> None:
        self.step()

    def _replace(self) -> dict[str, tuple[int, ...]]:
        changed: dict[str, tuple[int, ...]] = {}
        for tracked in self._layers:
            if not all(reader.calls for reader in tracked.readers.values()):
                continue
            self._update(tracked)
            units = self._due(tracked)
            if len(units):
                self._transfer(tracked, units)
                columns = {n: _columns_of(reader, units) for n, reader in tracked.readers.items()}
                draw(tracked.layer, units, columns, self._optimizers)
                tracked.utility[units], tracked.age[units] = 0.0, 0
                changed[_name(tracked)] = tuple(units.tolist())
                self.replaced[_name(tracked)] += len(units)
        return changed

    def _update(self, tracked: _Layer) -> None:
        """Age all units by a step, and add what they contributed to their utility."""
        tracked.age += 1
        tracked.utility *= self.decay
        for reader in tracked.readers.values():
            of_columns = contribution(reader.size / reader.calls, _outgoing(reader.module))
            known = reader.unit >= 0
            tracked.utility.index_add_(0, reader.unit[known], (1 - self.decay) * of_columns[known])
            reader.average.lerp_(reader.value / reader.calls, 1 - self.decay)
            reader.size.zero_()
            reader.value.zero_()
            reader.calls = 0

    def _due(self, tracked: _Layer) -> Tensor:
        """The mature units of least utility, as many as are due."""
        mature = (tracked.age > self.maturity).nonzero().flatten()
        tracked.due += self.rate * len(mature)
        count = min(int(tracked.due), len(mature))
        tracked.due -= count
        utility = self._corrected(tracked.utility, tracked.age)[mature]
        return mature[utility.topk(count, largest=False).indices]

    def _transfer(self, tracked: _Layer, units: Tensor) -> None:
        """Let the biases of the readers take over the mean contribution of units."""
        for reader in tracked.readers.values():
            columns = _columns_of(reader, units)
            if reader.module.bias is not None and getattr(reader.module, "groups", 1) == 1:
                mean = self._corrected(reader.average[columns], tracked.age[reader.unit[columns]])
                weight = reader.module.weight[:, columns]
                weight = weight.flatten(2).sum(2) if weight.dim() > 2 else weight
                reader.module.bias += weight @ mean
            reader.average[columns] = 0.0

    def _corrected(self, average: Tensor, age: Tensor) -> Tensor:
        return average / (1 - self.decay ** age.clamp_min(1))

    def _prepare(self, example: Any) -> None:
        """Find the layers and their readers, and watch what these read."""
        layers, self.refused = hidden_layers(self.model, example, self.call)
        self._layers = []
        hooked: dict[str, list[_Reader]] = {}
        for layer in layers:
            units = layer.unit_of_columns()
            if isinstance(units, str):
                self.refused[layer.prefix + layer.name] = units
                continue
            readers = {}
            for name, unit in units.items():
                zeros = torch.zeros(3, len(unit), device=_weight_of(layer.modules[name]).device)
                reader = _Reader(layer.modules[name], unit.to(zeros.device), *zeros)
                readers[name] = reader
                hooked.setdefault(name, []).append(reader)
            age = torch.zeros(layer.units, device=_weight_of(layer.modules[layer.name]).device)
            self._layers.append(_Layer(layer, readers, torch.zeros_like(age), age))
        for same in hooked.values():
            self._handles.append(same[0].module.register_forward_pre_hook(_Reads(same)))
        self._restore()

    def _is_current(self) -> bool:
        """Whether the modules are still those that were found; a conversion puts others in their place."""
        if not self._layers:
            return True
        modules = set(self.model.modules())
        return all(
            tracked.layer.modules[tracked.layer.name] in modules
            and len(_weight_of(tracked.layer.modules[tracked.layer.name])) == tracked.layer.units
            and all(
                r.module in modules and len(r.unit) == _inputs_of(r.module) for r in tracked.readers.values()
            )
            for tracked in self._layers
        )

    def _await_call(self) -> None:
        """Learn from the next call how the network is made."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._layers = []
        if not self._first:
            hook = _FirstCall(weakref.ref(self))
            self._first.append(self.model.register_forward_pre_hook(hook, with_kwargs=True))

    def _called(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        for handle in self._first:
            handle.remove()
        self._first.clear()
        self._prepare(Arguments(*detached((args, dict(kwargs)))))


class _Reads:
    """A hook of a layer that reads units; copies of the network go without it."""

    def __init__(self, readers: list[_Reader]) -> None:
        self.readers = readers

    def __reduce__(self) -> Any:
        return type(self), ([],)

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        for reader in self.readers:
            if reader.module is module and args and not is_functorch_wrapped_tensor(args[0]):
                reader.see(args[0])


class _FirstCall:
    """A hook of the network that shows one call; copies of the network go without it."""

    def __init__(self, owner: Callable[[], ContinualBackprop | None]) -> None:
        self.owner = owner

    def __reduce__(self) -> Any:
        return type(self), (_nobody,)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        owner = self.owner()
        if owner is None or module is not owner.model or torch.compiler.is_compiling():
            return
        inside_transform = any(map(is_functorch_wrapped_tensor, tensors_in((args, dict(kwargs)))))
        if torch.is_grad_enabled() and not inside_transform:
            owner._called(args, kwargs)


def _nobody() -> None:
    """What a hook refers to after it has been copied."""


def _name(tracked: _Layer) -> str:
    return tracked.layer.prefix + tracked.layer.name


def _weight_of(module: Any) -> Tensor:
    weight: Tensor = module.weight
    return weight


def _inputs_of(module: Any) -> int:
    """The number of inputs of a linear or convolution layer."""
    count: int = module.in_features if isinstance(module, nn.Linear) else module.in_channels
    return count


def _outgoing(module: Any) -> Tensor:
    """The weights that read every input, (outputs, inputs): those of a kernel or a group below each other."""
    weight: Tensor = module.weight.detach()
    if (groups := getattr(module, "groups", 1)) > 1:
        weight = torch.cat(weight.chunk(groups), 1)
    return weight.flatten(2).transpose(1, 2).flatten(0, 1) if weight.dim() > 2 else weight


def _columns_of(reader: _Reader, units: Tensor) -> Tensor:
    return torch.isin(reader.unit, units).nonzero().flatten()
