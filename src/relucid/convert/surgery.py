"""Changes to the modules of a network, each recorded, so that they can be repeated on another instance."""

from __future__ import annotations

import copy
import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Concatenate, ParamSpec

from torch import Tensor, nn
from torch.optim import Optimizer

from relucid._torch import ConvNd, ConvTransposeNd, copy_hooks, slow_path, unparametrized_class
from relucid.convert.modules import BothSigns, Centered, Function, Momentum
from relucid.nn import (
    CReLU,
    GeometricConv1d,
    GeometricConv2d,
    GeometricConv3d,
    GeometricLinear,
    MeanNorm,
    rules,
)
from relucid.nn.affine import affine_before, affine_of
from relucid.nn.kinds import is_homogeneous
from relucid.nn.propagation import Propagation

Operation = dict[str, Any]  # {"do": a method of Surgery, and its arguments, as JSON has them}
Carry = Callable[[Tensor], Tensor]
Arguments = ParamSpec("Arguments")
GEOMETRIC: dict[type[nn.Module], Any] = {
    nn.Linear: GeometricLinear,
    nn.Conv1d: GeometricConv1d,
    nn.Conv2d: GeometricConv2d,
    nn.Conv3d: GeometricConv3d,
}
HISTORY = "relucid_operations"  # the attribute of a converted network that lists how it was made
NORMS: dict[int, Any] = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
PADS: dict[int, Any] = {2: nn.ConstantPad1d, 4: nn.ConstantPad2d, 6: nn.ConstantPad3d}


def operation(
    method: Callable[Concatenate[Surgery, Arguments], None],
) -> Callable[Concatenate[Surgery, Arguments], None]:
    """A method that also records its call; keyword arguments that JSON does not have are left out."""

    @functools.wraps(method)
    def recorded(self: Surgery, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        method(self, *args, **kwargs)
        names = method.__code__.co_varnames[1:]
        given = dict(zip(names, args, strict=False)) | kwargs
        plain = {
            name: value
            for name, value in given.items()
            if not callable(value) and not isinstance(value, Tensor)
        }
        self.operations.append({"do": method.__name__, **plain})

    return recorded


class Surgery:
    """A network whose modules are being changed, with the optimizers that go with it.

    A module or a parameter that stands in several places is changed in all of them.

    Args:
        model: The network, which is changed in place.
        optimizer: If given, its groups follow the parameters, and its state is kept for every entry that stays; so it
            is with optimizers that the network's modules have as attributes.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer | None = None) -> None:
        self.model = model
        own = (value for module in model.modules() for value in vars(module).values())
        found = [optimizer, *(value for value in own if isinstance(value, Optimizer))]
        self.optimizers = list(dict.fromkeys(each for each in found if each is not None))
        self._names = {
            p: name
            for group in self._named_groups()
            for p, name in zip(group["params"], group["param_names"], strict=True)
        }
        self.operations: list[Operation] = list(getattr(model, HISTORY, ()))
        self._index: dict[nn.Module | nn.Parameter, list[tuple[nn.Module, str]]] = {}
        self._note(model)

    def close(self) -> None:
        """Leave the list of all operations since the original with the network, for the next conversion to go on."""
        changed = {each["name"] for each in self.operations}
        for name, module in self.model.named_modules():
            own = f"{name}." if name else ""
            if isinstance(module, nn.TransformerEncoderLayer) and any(n.startswith(own) for n in changed):
                slow_path(module)
        setattr(self.model, HISTORY, tuple(self.operations))
        new = {p: name for name, p in self.model.named_parameters()}
        for group in self._named_groups():
            group["param_names"] = [self._names.get(p) or new[p] for p in group["params"]]

    def _named_groups(self) -> list[dict[str, Any]]:
        """The groups of optimizers that were given named parameters."""
        return [g for each in self.optimizers for g in each.param_groups if "param_names" in g]

    def repeat(self, operations: Iterable[Operation]) -> None:
        """Do what another surgery recorded; resized tensors are left at 1."""
        for each in operations:
            arguments = dict(each)
            getattr(self, arguments.pop("do"))(**arguments)
        self.close()

    @operation
    def crelu(self, name: str, *, dim: int, groups: int = 1, paired: int | None = None) -> None:
        """Put a CReLU in place of an activation."""
        self.put(name, CReLU(dim, paired=paired, groups=groups))

    @operation
    def signs(self, name: str, *, dim: int, groups: int = 1, paired: int | None = None) -> None:
        """Make a module return both signs of its value."""
        BothSigns.make(self.model.get_submodule(name), dim, groups, paired)

    @operation
    def identity(self, name: str) -> None:
        """Put an identity in place of a module."""
        self.put(name, nn.Identity())

    @operation
    def geometric(self, name: str, *, relu: bool = False) -> None:
        """Describe the filters of a layer by directions, offsets and scales, with a ReLU inside or not."""
        layer = self.model.get_submodule(name)
        self.put(name, GEOMETRIC[type(layer)].from_standard(layer, nn.ReLU() if relu else None))

    @operation
    def unpad(self, name: str) -> None:
        """Let a convolution pad nothing."""
        self.put(name, with_padding(self.model.get_submodule(name), 0))

    @operation
    def center(
        self, name: str, *, features: int, padding: Sequence[int] = (), mean: Tensor | None = None
    ) -> None:
        """Subtract the mean of a layer's input before it (IMN), after the padding that was the layer's own."""
        layer = self.model.get_submodule(name)
        norm = MeanNorm(features).to(next(layer.parameters()))
        if mean is not None:
            norm.running_mean.copy_(mean)
        parts: dict[str, nn.Module] = {"center": norm, "layer": layer}
        if padding:
            parts = {"pad": PADS[len(padding)](tuple(padding), 0.0), **parts}
        self.put(name, Centered(OrderedDict(parts)))

    @operation
    def uncenter(self, name: str) -> None:
        """Make one layer of a plain layer and the padding and IMN before it."""
        centered: Any = self.model.get_submodule(name)
        if not isinstance(centered.layer, nn.Linear | ConvNd):
            return  # it has an activation inside, or stays geometric
        layer = copy.deepcopy(centered.layer)
        _, bias = affine_before(layer, *affine_of(centered.center))
        layer.bias = nn.Parameter(bias.to(layer.weight.dtype))
        if hasattr(centered, "pad"):
            layer = with_padding(layer, centered.pad.padding[-2::-2])
        self.put(name, layer)

    @operation
    def standard(self, name: str) -> None:
        """Put a standard layer in place of a geometric one, with its activation after it.

        Negative scales are left out: the layers that read it must take them.
        """
        layer: Any = copy.deepcopy(self.model.get_submodule(name))
        activation, layer.activation = layer.activation, None
        if activation is not None and layer.scale is not None:
            kept = nn.Parameter(layer.scale.detach().abs())
            layer.scale = kept if is_homogeneous(activation) else None
        new = layer.to_standard()
        if activation is not None:
            after = activation if isinstance(activation, nn.Module) else Function(activation)
            new = nn.Sequential(OrderedDict(layer=new, activation=after))
        self.put(name, new)

    @operation
    def unparametrize(self, name: str) -> None:
        """Replace parametrized weights by plain ones."""
        module: Any = self.model.get_submodule(name)
        training, module = module.training, module.eval()  # spectral norm iterates in training
        lists = dict(module.parametrizations.named_children())
        weights = {key: getattr(module, key).detach() for key in lists}
        trained = {key: any(p.requires_grad for p in m.parameters()) for key, m in lists.items()}
        # Torch's own removal changes the class, which the original shares.
        del module.parametrizations
        module.__class__ = unparametrized_class(module)
        for key, weight in weights.items():
            module.register_parameter(key, nn.Parameter(weight, trained[key]))
        module.train(training)

    @operation
    def batch_norm(self, name: str, *, dims: int) -> None:
        """Put a batch norm of unit variance in place of a mean norm of values with ``dims`` dimensions."""
        norm: Any = self.model.get_submodule(name)
        new = NORMS[dims](norm.num_features, eps=0.0, affine=False).to(norm.running_mean)
        new.running_mean.copy_(-affine_of(norm)[1])
        self.put(name, new)

    @operation
    def scaled(self, name: str, *, dims: int, features: int, value: Tensor | None = None) -> None:
        """Multiply the channels of a value with ``dims`` dimensions by a batch norm of unit variance."""
        module: Any = self.model.get_submodule(name)
        norm = NORMS[dims](features, eps=0.0).to(next(module.parameters())).train(module.training)
        if value is not None:
            norm.weight.data.copy_(value)
        module.add_module("scale", norm)

    @operation
    def heavy_ball(self, name: str, *, steps: Sequence[int]) -> None:
        """Give a sequence of residual blocks momentum."""
        stage: Any = self.model.get_submodule(name)
        own = list(stage.parameters())
        Momentum.make(stage, tuple(steps))
        self.add(stage.betas, beside=own)

    @operation
    def heavy_ball_rule(self, name: str) -> None:
        """Let a residual stage go on by heavy ball, with learned beta1 = 1 and beta2 = 0."""
        old = self.model.get_submodule(name)
        assert isinstance(old, Propagation)
        depth, like = old.depth, next(old.parameters())
        rule = rules.HeavyBall(beta1=[1.0] * depth, beta2=[0.0] * depth, learnable=True)
        first = old.get_submodule("0") if old.has_first else None
        new = Propagation(
            old.transforms,
            rule,
            first=first,
            after=old.after,
            start=old.start,
            state_dtype=old.state_dtype,
            device=like.device,
            dtype=like.dtype,
        )
        self.put(name, new)
        for beta in new.parameters(recurse=False):
            self.add(beta, beside=old.parameters())

    @operation
    def bias(self, name: str, *, value: Tensor | None = None) -> None:
        """Set the bias of a layer, which may have had none."""
        layer: Any = self.model.get_submodule(name)
        if layer.bias is not None:
            self.resize(f"{name}.bias", shape=list(layer.bias.shape), value=value)
            self.operations.pop()
            return
        weight = layer.weight
        units = weight.shape[1] * layer.groups if isinstance(layer, ConvTransposeNd) else len(weight)
        new = weight.new_zeros(units) if value is None else value.detach().to(weight)
        layer.bias = nn.Parameter(new, weight.requires_grad)
        self._index[layer.bias] = [(layer, "bias")]
        self._follow([weight], [layer.bias], drop=False, after=True)

    @operation
    def attribute(self, name: str, *, key: str, value: Any) -> None:
        """Set an attribute of a module, such as ``in_features``."""
        setattr(self.model.get_submodule(name), key, value)

    @operation
    def resize(
        self, name: str, *, shape: Sequence[int], value: Tensor | None = None, carry: Carry | None = None
    ) -> None:
        """Give a parameter or buffer another shape.

        Args:
            name: Its full name.
            shape: The new shape.
            value: The new value, 1 by default.
            carry: What turns the gradient and an optimizer's state for the old parameter into those for the new;
                without it, they start anew.
        """
        path, _, leaf = name.rpartition(".")
        old = getattr(self.model.get_submodule(path), leaf)
        new = old.new_ones(tuple(shape)) if value is None else value.detach().to(old)
        if not isinstance(old, nn.Parameter):
            setattr(self.model.get_submodule(path), leaf, new)
            return
        parameter = nn.Parameter(new.contiguous(), old.requires_grad)
        vars(parameter).update(vars(old))
        if carry is not None and old.grad is not None:
            parameter.grad = carry(old.grad)
        places = self._places(old)
        for place, leaf in places:
            setattr(place, leaf, parameter)
        self._index[parameter] = places
        self._follow([old], [parameter], carry)

    def put(self, name: str, new: nn.Module) -> None:
        """Put a module in place of another, with its mode and hooks, wherever that stands."""
        old = self.model.get_submodule(name)
        copy_hooks(old, new.train(old.training))
        places = self._places(old)
        for place, leaf in places:
            setattr(place, leaf, new)
        self._index.setdefault(new, []).extend(places)
        self._note(new)
        kept = set(new.parameters())
        gone = [p for p in old.parameters() if p not in kept]
        self._follow(gone, [p for p in new.parameters() if p not in set(old.parameters())])

    def _places(self, old: nn.Module | nn.Parameter) -> list[tuple[nn.Module, str]]:
        """Everything that holds a module or parameter, with its name there."""
        return [place for place in self._index.get(old, []) if getattr(*place) is old]

    def _note(self, root: nn.Module) -> None:
        """Take what a module contains into the index of places: to look for each anew would take long."""
        inside = (*root.named_modules(remove_duplicate=False), *root.named_parameters(remove_duplicate=False))
        for path, held in inside:
            if path:
                place, _, leaf = path.rpartition(".")
                self._index.setdefault(held, []).append((root.get_submodule(place), leaf))

    def add(self, parameter: nn.Parameter, beside: Iterable[nn.Parameter]) -> None:
        """Let the optimizer train a new parameter, in the group of those ``beside`` it."""
        self._follow(list(beside), [parameter], drop=False)

    def _follow(
        self,
        old: list[nn.Parameter],
        new: list[nn.Parameter],
        carry: Carry | None = None,
        *,
        drop: bool = True,
        after: bool = False,
    ) -> None:
        """Put new parameters into the optimizers' groups before or after the old ones, and drop those."""
        for optimizer in self.optimizers:
            left, add = old, new
            # Of several groups the one with the least decay: it harms latitudes and coefficients.
            for group in sorted(optimizer.param_groups, key=lambda group: group.get("weight_decay", 0)):
                here = [p for p in group["params"] if any(p is o for o in left)]
                if not here:
                    continue
                first = next(i for i, p in enumerate(group["params"]) if p is here[0]) + after
                group["params"][first:first] = add
                if drop:
                    group["params"] = [p for p in group["params"] if not any(p is o for o in left)]
                left, add = [p for p in left if not any(p is h for h in here)], []
                for p in here if drop else ():
                    state = optimizer.state.pop(p, None)
                    if state and carry is not None:
                        _carry(optimizer, p, group["params"][first], state, carry)


def _carry(
    optimizer: Optimizer, old: nn.Parameter, new: nn.Parameter, state: dict[str, Any], carry: Carry
) -> None:
    """Keep an optimizer's state for the entries of a parameter that stay."""
    if any(isinstance(v, Tensor) and v.dim() and v.shape != old.shape for v in state.values()):
        kind = type(optimizer).__name__
        warnings.warn(
            f"{kind} has no state per entry of a weight: for changed weights it starts anew", stacklevel=2
        )
        return
    optimizer.state[new] = {
        key: carry(value) if isinstance(value, Tensor) and value.dim() else value
        for key, value in state.items()
    }


def with_padding(layer: Any, padding: int | tuple[int, ...]) -> Any:
    """A convolution with the same parameters and another padding."""
    geometry = (layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, padding)
    new = type(layer)(*geometry, layer.dilation, layer.groups, layer.bias is not None, device="meta")
    new.weight, new.bias = layer.weight, layer.bias
    return new
