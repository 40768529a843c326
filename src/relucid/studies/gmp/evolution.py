"""gmp Fig. 2 and 3: how boundaries move and turn at each step of training, on Levy and on Banana."""

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from relucid.inspect.boundary import Boundary, boundary
from relucid.inspect.tracker import change
from relucid.studies.gmp.problems import BEST_RATES, METHODS, PROBLEMS, gain, network, trials
from relucid.studies.run import Result
from relucid.studies.runner import Runner
from relucid.studies.study import Column, Scale, Study
from relucid.studies.table import Cell, Table
from relucid.train.ensemble import BETA1, BETA2, Tensors

FRAMES = 60  # moments of training that can be played back, evenly spaced on a logarithmic scale
COURSE = 400  # points of the course of the largest changes
# No step of Adam is longer, in learning rates, whatever the gradients (Cauchy and Schwarz); of a single gradient
# after many zeros it is (1 - BETA1) / sqrt(1 - BETA2), about 3.
ADAM = (1 - BETA1) / ((1 - BETA2) * (1 - BETA1**2 / BETA2)) ** 0.5
LARGE = 0.1  # the rate at which gmp Fig. 2c and 3i compare all methods
SMALL_AND_LARGE = (0.01, LARGE)


class Watch:
    """Sees every step of networks with one hidden layer in training; of the first it keeps frames.

    Args:
        networks: M of them, before training.
        method: their parameterization.
        units: of each.
        steps: at most so many.
        probe: inputs (P, n) at which the first network's outputs are kept.
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
        """Note how far the boundaries of each network have moved and turned in a step, at most."""
        now = self._boundaries(state, len(members))
        own = (members.unsqueeze(1) * self.units + torch.arange(self.units)).flatten()
        before = Boundary(self.last.direction[own], self.last.radius[own])
        moved, turned = (each.nan_to_num(0).view(-1, self.units).amax(1) for each in change(before, now))
        self.moved[step - 1, members], self.turned[step - 1, members] = moved, turned
        self.last.direction[own], self.last.radius[own] = now.direction, now.radius
        if step in self.moments and members[0] == 0:
            self._keep(step, state, now)

    def _boundaries(self, state: Tensors, count: int) -> Boundary:
        """The boundaries of all networks: their hidden layers side by side are that of one wide network."""
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
        own = {name: values[0] for name, values in state.items()}
        with torch.no_grad():
            outputs = functional_call(self.first, own, (self.probe,)).squeeze(1)
        frame = Boundary(now.direction[: self.units].clone(), now.radius[: self.units].clone())
        self.frames[step] = frame, outputs


def run(config: dict[str, Any]) -> Result:
    """Train one parameterization at one rate on all splits, and watch its boundaries."""
    problem, splits = PROBLEMS[config["data"]], range(config["splits"])
    found = trials(problem, config["method"], splits, config["stop_on"])
    first = found.train[0]
    steps = -(-len(first) // (problem.batch_size or len(first)))  # in an epoch
    epochs = config["epochs"] or problem.epochs
    probe = _probe(first.inputs)
    watch = Watch(found.networks, config["method"], problem.units, epochs * steps, probe)
    course = found.learn([config["rate"]] * len(splits), epochs, watch)
    lengths = (course.epochs * steps).tolist()
    moved, turned = (
        [each[:length, place].numpy() for place, length in enumerate(lengths)]
        for each in (watch.moved, watch.turned)
    )
    return Result(
        {
            "error": found.errors().tolist(),
            "log2 step": [float(np.log2(each.max())) for each in moved],
            "turn": [float(np.rad2deg(each.max())) for each in turned],
            "epochs": course.epochs.tolist(),
        },
        arrays={
            **_frames({step: frame for step, frame in watch.frames.items() if step <= lengths[0]}),
            **_course(moved[0], turned[0]),
            "probe": probe.float().numpy(),
            "inputs": first.inputs.float().numpy(),
            "targets": first.targets.float().numpy(),
        },
    )


RUNNER = Runner("gmp/evolution", run)


def _probe(inputs: Tensor) -> Tensor:
    """Points on a line, or on a square, that cover the inputs (N, 1) or (N, 2)."""
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
        "direction": torch.stack([each.direction for each in boundaries]).float().numpy(),
        "radius": torch.stack([each.radius for each in boundaries]).float().numpy(),
        "outputs": torch.stack(outputs).float().numpy(),
    }


def _course(moved: np.ndarray, turned: np.ndarray) -> dict[str, np.ndarray]:
    """The largest changes in `COURSE` stretches of training, and the steps at which these end."""
    stretches = np.array_split(np.arange(len(moved)), min(COURSE, len(moved)))
    return {
        "course": np.array([stretch[-1] + 1 for stretch in stretches]),
        "moved": np.array([moved[stretch].max() for stretch in stretches]),
        "turned": np.array([turned[stretch].max() for stretch in stretches]),
    }


def _columns(what: dict[str, Column]) -> dict[str, Column]:
    """Each column at either rate."""
    return {
        f"{label}, rate {rate:g}": Column(column.metric, {"rate": rate}, digits=column.digits)
        for label, column in what.items()
        for rate in SMALL_AND_LARGE
    }


def _errors(table: Table, label: str, digits: int) -> str:
    """Whether GmP's error is lower than the best of the others: at the paper's rates, and at either rate."""

    def cell(method: str, rate: float) -> Cell:
        return table.cells[method, f"{label}, rate {rate:g}"]

    def compared(cells: list[tuple[str, Cell]]) -> str:
        ours = cell("GmP", LARGE)
        best, other = min(cells, key=lambda pair: pair[1].mean or 0.0)
        mean, error = gain(ours, other)
        word = "lower than" if mean > 2 * error else "higher than" if mean < -2 * error else "close to"
        return (
            f"{word} that under the best of the others, {best}, {other.mean or 0.0:.{digits}f} "
            f"(difference {mean:.{digits}f} ± {error:.{digits}f})"
        )

    others = [method for method in METHODS if method != "GmP"]
    at_theirs = compared([(method, cell(method, BEST_RATES[method])) for method in others])
    at_either = compared(
        [(f"{m} at rate {rate:g}", cell(m, rate)) for m in others for rate in SMALL_AND_LARGE]
    )
    ours = cell("GmP", LARGE).mean or 0.0
    return (
        f"At the paper's rates the error under GmP, {ours:.{digits}f}, is {at_theirs}; "
        f"where the others may have either rate it is {at_either}"
    )


def levy_verdict(table: Table) -> str:
    """Whether steps stay below 1 under GmP alone, what Adam alone implies, and whose error is lowest."""
    largest = {m: max(table.cells[m, f"log2 of the largest step, rate {LARGE:g}"].values) for m in METHODS}
    below = [method for method in METHODS if largest[method] < 0]
    return (
        f"At rate {LARGE:g} no step of a characteristic point is larger than {2 ** largest['GmP']:.2g} under GmP; the "
        "largest are "
        + ", ".join(f"2^{largest[method]:.0f} under {method}" for method in METHODS if method != "GmP")
        + f". It stays below 1 under {' and '.join(below) or 'none'}. For GmP that follows from Adam: the point is a "
        f"parameter, and no step of Adam exceeds {ADAM:.2f} rates, here {ADAM * LARGE:.2f}. "
        f"{_errors(table, 'RMSE', 3)}."
    )


def banana_verdict(table: Table) -> str:
    """Whether directions turn gently under GmP alone, what Adam alone implies, and whose error is lowest."""
    largest = {m: max(table.cells[m, f"largest turn in degrees, rate {LARGE:g}"].values) for m in METHODS}
    return (
        f"At rate {LARGE:g} no step turns a direction by more than {largest['GmP']:.0f}° under GmP; the largest "
        "turns are "
        + ", ".join(f"{largest[method]:.0f}° under {method}" for method in METHODS if method != "GmP")
        + f". For GmP the bound follows from Adam, whose steps of an angle do not exceed {ADAM:.2f} rates, here "
        f"{np.rad2deg(ADAM * LARGE):.0f}°. {_errors(table, 'test error %', 1)}."
    )


SCALES = {
    "full": Scale({"splits": 10, "epochs": None}, seconds=60),
    "smoke": Scale({"splits": 2, "epochs": 5}, seconds=1),
}
ROWS = {method: {"method": method} for method in METHODS}

LEVY = Study(
    name="gmp/levy",
    title="The Levy function learned by 100 units, and how far their characteristic points move in a step",
    run=RUNNER,
    rows=ROWS,
    columns=_columns(
        {"RMSE": Column("error", digits=3), "log2 of the largest step": Column("log2 step", digits=1)}
    ),
    config={"data": "levy", "stop_on": "train"},
    scales=SCALES,
    repeat={},
    source="gmp Fig. 2",
    claim=(
        "Under GmP the largest change of a characteristic point in a step is always below 1, under the other "
        "parameterizations it is up to 2^16; GmP can be trained at a ten times larger rate and generalises "
        "best (gmp 3.5, Fig. 2)."
    ),
    verdict=levy_verdict,
    figures="relucid.report.gmp:levy",
    protocol=(
        "10 networks, each with its own 50 points (noise 0.1) and initial weights; MAE loss, Adam, full "
        "batch, at most 10,000 epochs; the rate is cut to a tenth after 500 epochs without a lower training "
        "loss, training ends after 1000. The test part, a grid without noise, is looked at once. The paper "
        "shows one network of each kind and compares steps at rate 0.1, errors at 0.1 for GmP and 0.01 for "
        "the others. The boundary of a unit with batch norm is that of the folded unit. ± is the standard "
        "error."
    ),
)

BANANA = Study(
    name="gmp/banana",
    title="The Banana set learned by 10 units, and how far their directions turn in a step",
    run=RUNNER,
    rows=ROWS,
    columns=_columns(
        {"test error %": Column("error", digits=1), "largest turn in degrees": Column("turn", digits=0)}
    ),
    config={"data": "banana", "stop_on": "test"},
    scales=SCALES,
    repeat={},
    source="gmp Fig. 3",
    claim=(
        "Under GmP directions turn little at every step even at a large rate, under the other "
        "parameterizations by up to 180°; GmP has the highest test accuracy (gmp 3.5, Fig. 3)."
    ),
    verdict=banana_verdict,
    figures="relucid.report.gmp:banana",
    protocol=(
        "10 networks, each with its own 1000 points of 5300 (800 for training), order and initial weights; "
        "standardised features, cross entropy, Adam, batches of 128, at most 5000 epochs; the rate is cut to "
        "a tenth after 50 epochs without a better test accuracy, training ends after 100, the best weights "
        "count: as in the authors' runs, so that the error is that of weights chosen on the test part "
        "(gmp/rates has errors that are not). The paper shows one network of each kind. ± is the standard "
        "error."
    ),
)
