"""A stage of a network: layers joined by a rule."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, overload

import torch
from torch import Tensor, fx, nn

from relucid.nn.checks import check_callable
from relucid.nn.reversible import reversible_heavy_ball, to_state, transformed
from relucid.nn.rules import HeavyBall, Rule, per_layer, rule_of
from relucid.nn.tracing import Opaque, is_exported


class Propagation(Opaque):
    r"""A stage: transforms T_1, ..., T_K, which keep the shape of their input, joined by a rule.

    >>> stage = Propagation([nn.Linear(4, 4) for _ in range(3)], rule="heavy_ball")
    >>> stage(torch.zeros(2, 4)).shape
    torch.Size([2, 4])
    >>> stage = Propagation([nn.Linear(4, 4)], HeavyBall(beta1=1.0, beta2=-0.9, learnable=True))
    >>> list(stage.state_dict())
    ['beta1', 'beta2', '0.weight', '0.bias']

    ``len(stage)`` is K, ``stage[0]`` is T_1.

    Args:
        transforms: modules; for a rule with two paths (ADMM) pairs of them, (T', T).
        rule: a name in ``RULES``, or an object such as ``HeavyBall(beta=0.3)``.
        first: a block before the rule's first step that may change the shape, such as a downsampling block. It is
            child "0" and the transforms follow; without it, they are "0", "1", ....
        after: applied to each x_{k+1} before the next layer sees it. He's ResNet: "residual", ``nn.ReLU()``.
            An ``nn.ModuleList`` gives each layer its own module.
        start: x_{-1} is x_0 ("same", as in the algorithms) or 0 ("zero", as in a residual network's stage).
        reversible: same output and gradients, in memory that does not grow with depth; for heavy ball with beta2
            other than 0. Backward recomputes the transforms, and raises if it does not arrive at the input.
        state_dtype: dtype of the x_k, if not that of the input; the transforms compute in the input's. Float64, the
            default if reversible, is rounded to multiples of 2^-36, so that sums are exact.
        store_every: a reversible stage stores its state every so many layers. If beta2 is not -1, rounding
            errors in recovered states grow by 1 / \|beta2\| per layer.
        device: device of learned coefficients.
        dtype: dtype of learned coefficients.
    """

    weight_decay = False  # for its own parameters, the coefficients

    def __init__(
        self,
        transforms: Iterable[nn.Module | Sequence[nn.Module]],
        rule: str | Rule = "heavy_ball",
        *,
        first: nn.Module | None = None,
        after: Callable[[Tensor], Tensor] | None = None,
        start: Literal["same", "zero"] = "same",
        reversible: bool = False,
        state_dtype: torch.dtype | None = None,
        store_every: int | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_callable(after)
        self.rule, self.after, self.start = rule_of(rule), after, start
        self.reversible, self.store_every = reversible, store_every
        self.state_dtype = torch.float64 if reversible and state_dtype is None else state_dtype
        layers = [_layer(transform, self.rule.paths) for transform in transforms]
        self.depth, self.has_first = len(layers), first is not None
        if not layers and first is None:
            raise ValueError("a stage needs at least one transform, or a block as `first`")
        for k, module in enumerate(layers if first is None else [first, *layers]):
            self.add_module(str(k), module)
        coefficients = self.rule.coefficients(self.depth)
        self._check(coefficients)
        self._constants: dict[str, list[Any]] = {}
        for name, value in coefficients.items():
            values = per_layer(name, value, self.depth)
            if self.rule.learnable:
                kind = {"dtype": dtype or torch.get_default_dtype(), "device": device}
                self.register_parameter(name, nn.Parameter(torch.empty(value.shape, **kind)))
            else:
                self._constants[name] = values.tolist()
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Reset learned coefficients to the rule's values; the transforms are left alone."""
        for name, value in self.rule.coefficients(self.depth).items():
            if self.rule.learnable:
                self.get_parameter(name).copy_(value)

    def _check(self, coefficients: dict[str, Tensor]) -> None:
        if self.start not in ("same", "zero"):
            raise ValueError(f"start is 'same' (x_-1 = x_0) or 'zero' (x_-1 = 0), not {self.start!r}")
        if isinstance(self.after, nn.ModuleList) and len(self.after) != self.depth:
            raise ValueError(
                f"after has {len(self.after)} modules for {self.depth} layers: give one, or one for each layer"
            )
        if self.store_every is not None and (self.store_every < 1 or not self.reversible):
            raise ValueError("store_every is a number of layers, 1 or more, for a stage with reversible=True")
        if not self.reversible:
            return
        if not isinstance(self.rule, HeavyBall) or (coefficients["beta2"] == 0).any():
            raise ValueError(
                "reversible=True needs heavy ball with beta2 other than 0: only the term beta2 x_{k-1} lets "
                "x_{k-1} be recovered from x_k and x_{k+1}"
            )
        if self.after is not None:
            raise ValueError("reversible=True allows no `after`: what follows the sum could not be undone")
        if self.state_dtype != torch.float64:
            raise ValueError(f"reversible=True needs state_dtype=torch.float64: {self.state_dtype} drifts")

    @property
    def transforms(self) -> list[nn.Module]:
        """T_1, ..., T_K; for a rule with two paths, each is an ``nn.ModuleList`` (T', T)."""
        return [self.get_submodule(str(k + self.has_first)) for k in range(self.depth)]

    def __len__(self) -> int:
        return self.depth

    @overload
    def __getitem__(self, k: int) -> nn.Module: ...

    @overload
    def __getitem__(self, k: slice) -> list[nn.Module]: ...

    def __getitem__(self, k: int | slice) -> nn.Module | list[nn.Module]:
        """T_{k+1}, or several of them."""
        return self.transforms[k]

    def extra_repr(self) -> str:
        """The arguments that its children do not show."""
        return f"rule={self.rule}, start={self.start!r}, reversible={self.reversible}"

    def forward(self, x: Tensor) -> Tensor:
        """x_K, of the shape and dtype of x_0."""
        if isinstance(x, fx.Proxy):
            return self.as_node(x)
        if self.has_first:
            x = self.get_submodule("0")(x)
        state = to_state(x, self.state_dtype)
        previous = state if self.start == "same" else state.new_zeros(1).expand_as(state)
        # Without gradients nothing is stored anyway, and the ordinary loop can be compiled and exported.
        trained = torch.is_grad_enabled() and not is_exported()
        run = self._run_reversible if self.reversible and trained else self._run
        last = run(state, previous, x.dtype)
        return last if self.state_dtype is None else last.to(x.dtype)

    def _run(self, x: Tensor, previous: Tensor, dtype: torch.dtype) -> Tensor:
        variables, coefficients = self.rule.begin(x, previous), self._coefficients()
        for k, layer in enumerate(self.transforms):
            paths = layer if isinstance(layer, _Pair) else [layer]
            T = [partial(transformed, path, dtype=dtype, state_dtype=self.state_dtype) for path in paths]
            variables = self.rule.step(
                *T, *variables, **{name: values[k] for name, values in coefficients.items()}
            )
            after = self.after[k] if isinstance(self.after, nn.ModuleList) else self.after
            if after is not None:
                variables = (after(variables[0]), *variables[1:])
        return self.rule.end(*variables)

    def _run_reversible(self, x: Tensor, previous: Tensor, dtype: torch.dtype) -> Tensor:
        coefficients, transforms = self._coefficients(), self.transforms
        beta1, beta2 = (torch.as_tensor(coefficients[name], dtype=x.dtype) for name in ("beta1", "beta2"))
        length = self.store_every or max(1, self.depth)
        for begin in range(0, self.depth, length):
            part = slice(begin, begin + length)
            previous, x = reversible_heavy_ball(
                transforms[part], previous, x, beta1[part], beta2[part], dtype
            )
        return x

    def _coefficients(self) -> dict[str, Any]:
        """Each coefficient by name, for all layers."""
        learned = dict(self.named_parameters(recurse=False))
        return self._constants | {n: p.expand(self.depth) if p.dim() == 0 else p for n, p in learned.items()}


class _Pair(nn.ModuleList):
    """The transforms (T', T) of one layer, for a rule with two paths."""


def _layer(transform: nn.Module | Sequence[nn.Module], paths: int) -> nn.Module:
    if paths == 1 and isinstance(transform, nn.Module):
        return transform
    if paths == 2 and isinstance(transform, Sequence | nn.ModuleList) and len(transform) == 2:
        return _Pair(transform)
    wanted = "a module" if paths == 1 else "a pair of modules (T', T), one for each path"
    raise ValueError(f"a layer of this rule is {wanted}, not {type(transform).__name__}")
