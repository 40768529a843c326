"""How boundaries move and turn at each step of training: the runs of gmp Fig. 2 and 3."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from relucid.experiments import Column, Scale, Study, runner
from relucid.inspect._boundary import Boundary, boundary
from relucid.inspect.tracker import change
from relucid.train._stack import BETAS, Tensors
from relucid_reproductions.gmp.problems import METHODS, PROBLEMS, Problem, ScaleInit, StopOn, network, trials

FRAMES = 60  # moments of training to play back, evenly spaced on a logarithmic scale
COURSE = 400  # points on the curve of the largest changes
BETA1, BETA2 = BETAS
# The longest possible step of Adam, in learning rates, whatever the gradients (Cauchy-Schwarz); for a single gradient
# after many zeros it is (1 - BETA1) / sqrt(1 - BETA2), about 3.
ADAM = (1 - BETA1) / ((1 - BETA2) * (1 - BETA1**2 / BETA2)) ** 0.5
LARGE = 0.1  # the rate at which gmp Fig. 2c and 3i compare all methods
SMALL_AND_LARGE = (0.01, LARGE)


class EvolutionWatch:
    """Observer of every training step of networks with one hidden layer, with frames of the first network.

    Args:
        networks: M networks before training.
        method: their parameterization.
        units: the number of hidden units of each.
        steps: the largest number of steps.
        probe: inputs (P, n) at which the first network's outputs are recorded.
    """

    def __init__(self, networks: list[nn.Module], method: str, units: int, steps: int, probe: Tensor) -> None:
        self.first, self.method, self.units, self.probe = deepcopy(networks[0]).eval(), method, units, probe
        self.wide, self.count = self.first, 0
        self.moved, self.turned = torch.zeros(2, steps, len(networks), dtype=torch.float64)
        self.moments = {*np.geomspace(1, steps, FRAMES).round().astype(int).tolist()}
        self.frames: dict[int, tuple[Boundary, Tensor]] = {}
        params, buffers = stack_module_state(networks)
        state = {name: values.detach() for name, values in {**params, **buffers}.items()}
        self.last = self._boundaries(state, len(networks))
        self._keep(0, state, self.last)

    def __call__(self, step: int, members: Tensor, state: Tensors) -> None:
        """Record the largest move and the largest turn of each network's boundaries in a step."""
        now = self._boundaries(state, len(members))
        units = (members.unsqueeze(1) * self.units + torch.arange(self.units)).flatten()
        before = Boundary(self.last.direction[units], self.last.radius[units])
        moved, turned = (
            changes.nan_to_num(0).view(-1, self.units).amax(1) for changes in change(before, now)
        )
        self.moved[step - 1, members], self.turned[step - 1, members] = moved, turned
        self.last.direction[units], self.last.radius[units] = now.direction, now.radius
        if step in self.moments and members[0] == 0:
            self._keep(step, state, now)

    def _boundaries(self, state: Tensors, count: int) -> Boundary:
        """The boundaries of all networks, computed as one wide network with their hidden layers side by side."""
        if count != self.count:
            self.wide = network(self.method, self.probe.shape[1], self.units * count)
            self.count = count
        hidden = {
            name: values.flatten(0, 1)
            for name, values in state.items()
            if name.startswith(("fc1.", "bn1.")) and values.dim() > 1
        }
        self.wide.load_state_dict(hidden, strict=False)
        return boundary(self.wide.get_submodule("fc1"), dict(self.wide.named_children()).get("bn1"))

    def _keep(self, step: int, state: Tensors, now: Boundary) -> None:
        parameters = {name: values[0] for name, values in state.items()}
        with torch.no_grad():
            outputs = functional_call(self.first, parameters, (self.probe,)).squeeze(1)
        frame = Boundary(now.direction[: self.units].clone(), now.radius[: self.units].clone())
        self.frames[step] = frame, outputs


@runner("gmp/evolution")
def run(data: str, **settings: Any) -> dict[str, Any]:
    """Train one parameterization at one rate on all splits, and observe its boundaries, with settings of `evolve`."""
    return evolve(PROBLEMS[data], **settings)


def evolve(
    problem: Problem,
    method: str,
    rate: float,
    stop_on: StopOn,
    splits: int,
    epochs: int | None,
    init: ScaleInit = "glorot",
) -> dict[str, Any]:
    """Train networks on all splits of a problem, and observe their boundaries."""
    started = trials(problem, method, range(splits), stop_on, init=init)
    first = started.train[0]
    steps = -(-len(first) // (problem.batch_size or len(first)))  # per epoch
    epochs = epochs or problem.epochs
    probe = _probe(first.inputs)
    watch = EvolutionWatch(started.networks, method, problem.units, epochs * steps, probe)
    trained = started.learn([rate] * splits, epochs, watch)
    lengths = (trained.epochs * steps).tolist()
    moved, turned = (
        [changes[:length, place].numpy() for place, length in enumerate(lengths)]
        for changes in (watch.moved, watch.turned)
    )
    return {
        "error": started.errors().tolist(),
        "log2 step": [float(np.log2(changes.max())) for changes in moved],
        "turn": [float(np.rad2deg(changes.max())) for changes in turned],
        "epochs": trained.epochs.tolist(),
        "arrays": {
            **_frames({step: frame for step, frame in watch.frames.items() if step <= lengths[0]}),
            **_course(moved[0], turned[0]),
            "probe": probe.float().numpy(),
            "inputs": first.inputs.float().numpy(),
            "targets": first.targets.float().numpy(),
        },
    }


def _probe(inputs: Tensor) -> Tensor:
    """A grid of points on a line or a rectangle that covers the inputs (N, 1) or (N, 2)."""
    points = 101 if inputs.shape[1] == 1 else 31
    low, high = inputs.amin(0), inputs.amax(0)
    axes = [
        torch.linspace(float(a), float(b), points, dtype=inputs.dtype) for a, b in zip(low, high, strict=True)
    ]
    return torch.cartesian_prod(*axes).view(-1, len(axes))


def _frames(frames: dict[int, tuple[Boundary, Tensor]]) -> dict[str, np.ndarray]:
    """Steps (F,), directions (F, units, n) and radii (F, units) of boundaries, outputs (F, P) at the probe."""
    boundaries, outputs = zip(*frames.values(), strict=True)
    return {
        "step": np.array(list(frames)),
        "direction": torch.stack([moment.direction for moment in boundaries]).float().numpy(),
        "radius": torch.stack([moment.radius for moment in boundaries]).float().numpy(),
        "outputs": torch.stack(outputs).float().numpy(),
    }


def _course(moved: np.ndarray, turned: np.ndarray) -> dict[str, np.ndarray]:
    """The largest changes in each of `COURSE` stretches of training, and the steps at which these end."""
    stretches = np.array_split(np.arange(len(moved)), min(COURSE, len(moved)))
    return {
        "course": np.array([stretch[-1] + 1 for stretch in stretches]),
        "moved": np.array([moved[stretch].max() for stretch in stretches]),
        "turned": np.array([turned[stretch].max() for stretch in stretches]),
    }


ROWS = {method: {"method": method} for method in METHODS}


def study(name: str, title: str, columns: dict[str, Column], config: dict[str, Any], **fields: Any) -> Study:
    """A study of how boundaries evolve under all methods, with each column at both rates."""
    return Study(
        name,
        title,
        run,
        rows=ROWS,
        columns={
            f"{label}, rate {rate:g}": replace(column, config={"rate": rate})
            for label, column in columns.items()
            for rate in SMALL_AND_LARGE
        },
        config=config,
        scales={
            "full": Scale({"splits": 10, "epochs": None}),
            "smoke": Scale({"splits": 2, "epochs": 5}),
        },
        repeat={},
        **fields,
    )
