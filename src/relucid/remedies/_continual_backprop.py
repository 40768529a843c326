"""Continual backprop (Dohare et al. 2024): at every step, a few mature units of least utility are drawn again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from relucid._torch import is_functorch_wrapped_tensor
from relucid.inspect._hooks import NONE, Hook, inner_optimizer, original
from relucid.inspect.execution import Arguments, Method, function_of
from relucid.inspect.recorder import tensors_in
from relucid.remedies._effect import (
    NAN,
    Effect,
    Optimizers,
    RemedyError,
    check_network,
    moved_by,
    optimizers_in,
)
from relucid.remedies._units import HiddenLayer, hidden_layers


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

    def see(self, module: Any, args: tuple[Any, ...]) -> None:
        """Add the inputs of a call."""
        if not torch.is_grad_enabled() or module is not self.module or not args:
            return
        x = args[0]
        places = 0 if isinstance(module, nn.Linear) else len(module.kernel_size)
        dim = x.dim() - 1 - places
        # Of another size if it was converted meanwhile, which the next step will notice.
        if not is_functorch_wrapped_tensor(x) and x.shape[dim] == len(self.unit):
            rows = x.detach().movedim(dim, 0).flatten(1)
            self.size += rows.abs().mean(1)
            self.value += rows.mean(1)
            self.calls += 1

    @property
    def inputs(self) -> int:
        """The number of inputs that the layer has now."""
        count: int = getattr(self.module, "in_features", None) or self.module.in_channels
        return count

    def outgoing(self) -> Tensor:
        """The weights that read every input, (outputs, inputs): those of a kernel or a group below each other."""
        weight: Tensor = self.module.weight.detach()
        if (groups := getattr(self.module, "groups", 1)) > 1:
            weight = torch.cat(weight.chunk(groups), 1)
        return weight.flatten(2).transpose(1, 2).flatten(0, 1) if weight.dim() > 2 else weight


@dataclass
class _Layer:
    """The utility and age of the units of one layer."""

    layer: HiddenLayer
    readers: dict[str, _Reader]
    utility: Tensor  #: (units,): decaying average of contributions
    age: Tensor  #: (units,): steps since they were drawn
    due: float = 0.0  #: units that should have been replaced so far, less those that were

    @classmethod
    def of(cls, layer: HiddenLayer, columns: Mapping[str, Tensor]) -> _Layer:
        """A layer of which nothing has been seen."""
        readers = {}
        for name, unit in columns.items():
            module: Any = layer.modules[name]
            zeros = torch.zeros(3, len(unit), device=module.weight.device)
            readers[name] = _Reader(module, unit.to(zeros.device), *zeros)
        weight = layer.module.weight
        return cls(layer, readers, *torch.zeros(2, len(weight), device=weight.device))

    def is_current(self, modules: set[nn.Module]) -> bool:
        """Whether the modules are still those that were found; a conversion puts others in their place."""
        readers = self.readers.values()
        same = all(reader.inputs == len(reader.unit) for reader in readers)
        found = modules.issuperset([self.layer.module, *(reader.module for reader in readers)])
        return found and same and len(self.layer.module.weight) == len(self.age)


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
        self._attached: list[RemovableHandle] = []
        self._layers: dict[str, _Layer] = {}
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
        for handle in (*self._handles, *self._attached):
            handle.remove()

    @property
    def utility(self) -> dict[str, Tensor]:
        """The utility of every unit, by layer, corrected for its age."""
        return {name: self._corrected(layer.utility, layer.age) for name, layer in self._layers.items()}

    @property
    def age(self) -> dict[str, Tensor]:
        """For how many steps every unit has lived, by layer."""
        return {name: layer.age.clone() for name, layer in self._layers.items()}

    @torch.no_grad()
    def step(self, inputs: Any = None) -> Effect:
        """Update utilities with what was seen since the last step, and replace the units that are due.

        Args:
            inputs: Inputs on which to measure by how much outputs move, which takes two more passes.
        """
        modules = set(self.model.modules())
        if not all(layer.is_current(modules) for layer in self._layers.values()):
            self._await_call()
        if inputs is None:
            return Effect("continual backprop", self._replace(), NAN, self.refused)
        with moved_by(self.model, inputs, self.call) as moved:
            return Effect("continual backprop", self._replace(), moved(), self.refused)

    def state_dict(self) -> dict[str, Any]:
        """What to keep in a checkpoint."""
        return {
            name: {"utility": layer.utility, "age": layer.age, "due": layer.due}
            | {"averages": {reader: seen.average for reader, seen in layer.readers.items()}}
            for name, layer in self._layers.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._state = state
        for name, layer in self._layers.items():
            known = state.get(name)
            if known is not None and known["age"].shape == layer.age.shape:
                layer.utility, layer.age = known["utility"].clone(), known["age"].clone()
                layer.due = known["due"]
                for reader, average in known["averages"].items():
                    layer.readers[reader].average = average.clone()

    def _stepped(self, *_: object) -> None:
        self.step()

    def _replace(self) -> dict[str, tuple[int, ...]]:
        changed: dict[str, tuple[int, ...]] = {}
        for name, layer in self._layers.items():
            if not all(reader.calls for reader in layer.readers.values()):
                continue
            self._update(layer)
            units = self._due(layer)
            if len(units):
                self._transfer(layer, units)
                columns = {reader: seen.unit for reader, seen in layer.readers.items()}
                layer.layer.draw(units, columns, self._optimizers)
                layer.utility[units], layer.age[units] = 0.0, 0
                changed[name] = tuple(units.tolist())
                self.replaced[name] += len(units)
        return changed

    def _update(self, layer: _Layer) -> None:
        """Age all units by a step, and add what they contributed to their utility."""
        layer.age += 1
        layer.utility *= self.decay
        for reader in layer.readers.values():
            of_columns = contribution(reader.size / reader.calls, reader.outgoing())
            known = reader.unit >= 0
            layer.utility.index_add_(0, reader.unit[known], (1 - self.decay) * of_columns[known])
            reader.average.lerp_(reader.value / reader.calls, 1 - self.decay)
            reader.size.zero_()
            reader.value.zero_()
            reader.calls = 0

    def _due(self, layer: _Layer) -> Tensor:
        """The mature units of least utility, as many as are due."""
        mature = (layer.age > self.maturity).nonzero().flatten()
        layer.due += self.rate * len(mature)
        count = min(int(layer.due), len(mature))
        layer.due -= count
        utility = self._corrected(layer.utility, layer.age)[mature]
        return mature[utility.topk(count, largest=False).indices]

    def _transfer(self, layer: _Layer, units: Tensor) -> None:
        """Let the biases of the readers take over the mean contribution of units."""
        for reader in layer.readers.values():
            columns = torch.isin(reader.unit, units).nonzero().flatten()
            if reader.module.bias is not None and getattr(reader.module, "groups", 1) == 1:
                mean = self._corrected(reader.average[columns], layer.age[reader.unit[columns]])
                weight = reader.module.weight[:, columns]
                weight = weight.flatten(2).sum(2) if weight.dim() > 2 else weight
                reader.module.bias += weight @ mean
            reader.average[columns] = 0.0

    def _corrected(self, average: Tensor, age: Tensor) -> Tensor:
        return average / (1 - self.decay ** age.clamp_min(1))

    def _prepare(self, example: Any) -> None:
        """Find the layers and their readers, and watch what these read."""
        layers, self.refused = hidden_layers(self.model, example, self.call)
        for name, layer in layers.items():
            columns = layer.columns()
            if isinstance(columns, str):
                self.refused[name] = columns
                continue
            self._layers[name] = tracked = _Layer.of(layer, columns)
            for reader in tracked.readers.values():
                self._handles.append(reader.module.register_forward_pre_hook(Hook(reader.see)))
        self.load_state_dict(self._state)

    def _forget(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._layers.clear()

    def _await_call(self) -> None:
        """Learn from the next call how the network is made."""
        self._forget()
        self._handles.append(self.model.register_forward_pre_hook(Hook(self._called), with_kwargs=True))

    def _called(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] = NONE) -> None:
        inside_transform = any(map(is_functorch_wrapped_tensor, tensors_in((args, kwargs))))
        if model is self.model and torch.is_grad_enabled() and not inside_transform:
            self._forget()
            self._prepare(Arguments(args, kwargs).copied())
