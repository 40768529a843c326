"""Watch a network in any training loop: measure every so many steps, log, warn once per change, and act if asked to."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from relucid._torch import compiler_is_imported, is_compiled
from relucid.inspect._hooks import Hook, LatestInputs, inner_optimizer, original
from relucid.inspect._metrics import KEYS, TAU, Measured, Weights, measure, squared_norm, weights
from relucid.inspect._policy import Policy
from relucid.inspect._trace import trace
from relucid.inspect.activity import remedy
from relucid.inspect.batches import CalledParts, joined
from relucid.inspect.execution import Method

LIMIT = 0.5  # share of a layer's units that are dead above which it is reported
LOGGER = logging.getLogger("relucid")
Metrics = Mapping[str, float]
Log = Callable[[Metrics, int], object]


class Watch:
    """Watcher of a network in any training loop.

    `attach` the watch to the optimizer, or call `step` after every optimizer step. Every so many steps it measures the
    network on its latest inputs (see `metrics`), logs, and warns, once per change, if most units of a layer are dead or
    a policy is certain of everything. It never ends a training: what fails inside is a warning.

    Inputs are those of the latest calls, of the network or, if it is used through methods, of the modules inside that
    are called on their own, in training mode or with gradients. Hooks are on the modules only shortly before each
    measurement. In training on several processes the first one measures.

    Args:
        model: The network, whole or a part of it; it need not have a forward. Of a compiled one give what
            `torch.compile` returned.
        every: Measure after every so many steps.
        log: Called with the metrics and the step, as `wandb.log` is; by default they go to the logger "relucid", at
            level INFO. Warnings always go there, at level WARNING. It may change the network.
        data: Inputs to measure on, in any form that `metrics` takes and that can be iterated more than once; then the
            network need not be called.
        call: How ``data`` are given to the network, if not through its forward: a method's name, or a function of both.
        name: Begins every key: "critic" makes "critic/dead".
        step: The step to log with, such as that of the environment; by default the number of steps seen.
        layers: Whether to log the measures of every layer, too.
        policy: Which part returns the logits of a policy, by name, or a function of the network and the inputs.
        act: Called with this watch when the units of a layer have died, once per change: `watch.model`, `watch.inputs`
            and `watch.metrics` are what a remedy needs.
        limit: Share of dead units, in any layer, above which to warn.
        tau: Activity up to which a unit counts as dormant.
        start: Weights to measure the distance from, such as a copy of the first: a network or a state dict.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    >>> optimizer = torch.optim.Adam(net.parameters())
    >>> watch = Watch(net, every=10, log=lambda metrics, step: print(step, f"{metrics['dead']:.0%} dead"))
    >>> _ = net[0].bias.data.fill_(-100.0)
    >>> for _ in range(10):
    ...     net(torch.randn(64, 4)).square().mean().backward()
    ...     optimizer.step()
    ...     watch.step()
    10 100% dead
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        every: int = 1000,
        log: Log | None = None,
        data: Any = None,
        call: Method | None = None,
        name: str = "",
        step: Callable[[], int] | None = None,
        layers: bool = False,
        policy: Policy | None = None,
        act: Callable[[Watch], object] | None = None,
        limit: float = LIMIT,
        tau: float = TAU,
        start: Weights | None = None,
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1 step; got {every}")
        if not 0 <= limit <= 1:
            raise ValueError(f"limit must be a share from 0 to 1; got {limit}")
        if call is not None and data is None:
            raise ValueError("call= says how data= are given to the network: give data=, too")
        if isinstance(policy, str):
            original(model).get_submodule(policy)
        self.model = original(model)
        self.every, self.log, self.data, self.call, self.now = every, log, data, call, step
        self.prefix, self.layers, self.policy, self.act = f"{name}/" if name else "", layers, policy, act
        self.limit, self.tau, self.start = limit, tau, start
        self.time = 0  #: steps seen
        self.at = 0  #: the step of the latest measurement, by the user's counter
        self.metrics: dict[str, float] = {}  #: the latest
        self.reported: set[str] = set()  #: what has been warned of and is still so
        self._inputs = LatestInputs(self.model, model)
        self._gradients: dict[int, Tensor] = {}  # squared norms, as they were after the latest backward
        self._handles: list[RemovableHandle] = []  # on the parameters, for one step
        self._attached: RemovableHandle | None = None
        self._listen()

    def attach(self, optimizer: Any) -> Self:
        """Count the steps of an optimizer, or of the one in a wrapper, until `detach`; only the first one counts."""
        if self._attached is None:
            self._attached = inner_optimizer(optimizer).register_step_post_hook(self._stepped)
        return self

    def detach(self) -> None:
        """Stop watching."""
        if self._attached is not None:
            self._attached.remove()
        self._attached = None
        self._stop()
        self._inputs.kept.clear()

    def step(self) -> None:
        """Count a step, and measure if it is due."""
        self.time += 1
        self._inputs.end_step()
        if self.time % self.every == 0:
            self._stop()
            if _is_first_process():
                self._guarded()
            if self._inputs.window <= self.every:
                self._inputs.kept.clear()
            self._gradients.clear()
        self._listen()

    @property
    def inputs(self) -> Any:
        """What the network is measured on: ``data``, or its latest inputs, in a form that all remedies take."""
        if self.data is not None:
            return self.data
        return CalledParts({name: [*joined(kept)] for name, kept in self._inputs.kept.items()})

    @property
    def example(self) -> Any:
        """The arguments of the network's latest call, for a conversion."""
        if "" not in self._inputs.kept:
            raise ValueError("the network itself was not called: give an example of your own")
        latest = self._inputs.kept[""][-1]
        return dict(latest.kwargs) if latest.kwargs and not latest.args else latest.args

    def state_dict(self) -> dict[str, Any]:
        """What to keep in a checkpoint."""
        return {"time": self.time, "reported": sorted(self.reported)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting from a checkpoint."""
        self.time, self.reported = state["time"], set(state["reported"])
        self._listen()

    def __deepcopy__(self, memo: object) -> Self:
        """The same watch: a copy of the network, which a conversion makes for one, is not watched."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: neither inputs nor hooks, nor the user's functions."""
        plain = ("model", "every", "prefix", "layers", "limit", "tau", "time", "metrics", "reported")
        gone = ("log", "data", "call", "now", "act", "start", "_attached")
        policy = self.policy if isinstance(self.policy, str) else None
        return {n: getattr(self, n) for n in plain} | dict.fromkeys(gone) | {"policy": policy}

    def __setstate__(self, state: dict[str, Any]) -> None:
        model = state["model"]
        vars(self).update(
            state, at=state["time"], _handles=[], _gradients={}, _inputs=LatestInputs(model, model)
        )

    def _stepped(self, *_: object) -> None:
        self.step()

    def _listen(self) -> None:
        """Put hooks on the network if the next measurement is near, and take them off if it is not."""
        if not _is_first_process():
            return
        left = self.every - self.time % self.every
        if self.data is None and left <= self._inputs.window:
            self._inputs.start()
        else:
            self._inputs.stop()
        if left == 1:
            for number, parameter in enumerate(self.model.parameters()):
                if parameter.requires_grad and parameter.is_leaf:
                    hook = Hook(self._note_gradient, number)
                    self._handles.append(parameter.register_post_accumulate_grad_hook(hook))

    def _note_gradient(self, number: int, parameter: Tensor) -> None:
        """Note the norm of a gradient before it is clipped."""
        if parameter.grad is not None:
            self._gradients[number] = squared_norm(parameter.grad)

    def _stop(self) -> None:
        """Take all hooks off the network."""
        self._inputs.stop()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _guarded(self) -> None:
        """Measure; a failure is a warning, since a training of days does not end because of its watch."""
        self.at = self.time
        try:
            self.at = self.time if self.now is None else self.now()
            self._measure()
        except Exception as error:
            name = type(error).__name__
            self._report({f"failed {name}": f"the watch failed: {name}: {error}"}, failure=True)
        else:
            self._report({}, failure=True)

    def _measure(self) -> None:
        if self.data is None and not self._inputs.kept:
            if self._inputs.error is not None:
                raise self._inputs.error
            self._report({"unseen": f"not measured: {self._unseen()}"})
            return
        measured = self._measured()
        norm = math.sqrt(sum(map(float, self._gradients.values()))) if self._gradients else None
        measures = measured.metrics(self.tau) | weights(self.model, self.start, norm)
        measures |= measured.by_layer(self.tau) if self.layers else {}
        self.metrics = {self.prefix + key: value for key, value in measures.items()}
        new = self._report(self._troubles(measured))
        (self.log or _to_logger)(self.metrics, self.at)
        if self.act is not None and any(key.startswith("dead ") for key in new):
            self.act(self)

    def _measured(self) -> Measured:
        try:
            return measure(self.model, self.inputs, call=self.call, policy=self.policy)
        except Exception:
            if self.data is not None:
                raise
            # Calls put together were not what the network takes: as many rows of a state, say.
            apart = CalledParts({name: [*kept] for name, kept in self._inputs.kept.items()})
            return measure(self.model, apart, policy=self.policy)

    def _report(self, troubles: Mapping[str, str], *, failure: bool = False) -> list[str]:
        """Warn of what is new, and return its keys; failures of the watch come and go on their own."""
        new = [key for key in troubles if key not in self.reported]
        for key in new:
            which = f"{self.prefix[:-1]}: " if self.prefix else ""
            LOGGER.warning("%sstep %s: %s", which, self.at, troubles[key])
        kept = {key for key in self.reported if key.startswith("failed ") is not failure}
        self.reported = kept | set(troubles)
        return new

    def _troubles(self, measured: Measured) -> dict[str, str]:
        """What is to be warned of, by key."""
        troubles: dict[str, str] = {}
        if not measured.layers:
            troubles["no layers"] = (
                "there is no activation to watch in what was called: give data=, and call= if need be"
            )
        dying = {name: share for name, share in measured.dead.items() if share > self.limit}
        advice = self._advice(dying) if any(f"dead {name}" not in self.reported for name in dying) else {}
        for name, share in dying.items():
            troubles[f"dead {name}"] = f"{share:.0%} of the units of {name} are dead{advice.get(name, '')}"
        if measured.policy.is_certain:
            troubles["certain"] = measured.policy.sentence(self.policy)
        return troubles

    def _advice(self, layers: Mapping[str, float]) -> dict[str, str]:
        """What helps the dead units of layers, by layer."""
        kept = self._inputs.kept.get("")
        rectified = trace(self.model, kept[-1]).rectified if kept else ()
        convertible = {r.layer for r in rectified if remedy(r) is not None}
        example = "model, example, inplace=True, optimizer=optimizer"
        texts = {
            True: f": to_crelu({example}) lets them learn again and changes no output",
            False: ": relucid.remedies.redo(model, inputs, optimizer=optimizer) draws them again",
        }
        return {name: texts[name in convertible] for name in layers}

    def _unseen(self) -> str:
        """Why there are no inputs to measure on."""
        if compiler_is_imported() and not is_compiled(self._inputs.whole):
            return (
                "the network was not called, or only in compiled form, which does not show its inputs to a watch of "
                "the original: give what torch.compile returned, or data="
            )
        return "neither the network nor a module inside it was called in training mode: give data="


def _is_first_process() -> bool:
    return not (dist.is_available() and dist.is_initialized() and dist.get_rank())


def _to_logger(metrics: Metrics, step: int) -> None:
    whole = {name: value for name, value in metrics.items() if name.rpartition("/")[2] in KEYS}
    known = {name: value for name, value in whole.items() if not math.isnan(value)}
    LOGGER.info("step %d: %s", step, ", ".join(f"{name} {value:.3g}" for name, value in known.items()))
