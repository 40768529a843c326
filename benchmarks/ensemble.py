"""`train.ensemble` against a plain loop over the same networks: yacht, 10 splits x 6 learning rates (gmp Table 3).

Run it with nothing else on the machine: ``RELUCID_DATA=... python benchmarks/ensemble.py``.
"""

from copy import deepcopy
from functools import partial

import torch
import torch.nn.functional as F
from joblib import Parallel, delayed, parallel_config
from measure import Row, interleaved, report
from torch import nn

from relucid.data import Split, moments, uci
from relucid.models import create
from relucid.train import Plateau, ensemble

RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
EPOCHS, PLATEAU = 150, Plateau(patience=50, stop=100)


def problem(split: int) -> tuple[Split, Split]:
    data = uci("yacht", split)
    normal = moments(data.train)
    train, test = (Split(normal.normalize(part.inputs), part.targets) for part in (data.train, data.test))
    return train, test


def loop(network: nn.Module, train: Split, test: Split, rate: float) -> nn.Module:
    """One network, as one would train it."""
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    best, waited, weights = float("inf"), 0, {}
    for _ in range(EPOCHS):
        network.train()
        optimizer.zero_grad()
        F.l1_loss(network(train.inputs), train.targets).backward()
        optimizer.step()
        network.eval()
        with torch.no_grad():
            value = F.mse_loss(network(test.inputs), test.targets).item()
        waited += 1
        if value < best:
            best, waited = value, 0
            weights = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        if waited and waited % PLATEAU.patience == 0:
            optimizer.param_groups[0]["lr"] *= PLATEAU.factor
        if waited >= PLATEAU.stop:
            break
    network.load_state_dict(weights)
    return network


def one_after_the_other(networks, train, test, rates):
    return list(map(loop, deepcopy(networks), train, test, rates))


def in_two_processes(networks, train, test, rates):
    states = [network.state_dict() for network in networks]  # weight norm does not pickle
    names = [network.name for network in networks]
    with parallel_config("loky", n_jobs=2, inner_max_num_threads=1):
        return Parallel()(
            delayed(rebuilt_loop)(*one) for one in zip(names, states, train, test, rates, strict=True)
        )


def rebuilt_loop(name, state, *work):
    network = create(name, num_classes=1, in_channels=6).double()
    network.load_state_dict(state)
    loop(network, *work)


def all_at_once(networks, train, test, rates):
    settings = {"loss": F.l1_loss, "measure": F.mse_loss, "plateau": PLATEAU, "epochs": EPOCHS}
    ensemble(deepcopy(networks), train, test, rates=rates, **settings)


def compare(name: str) -> list[Row]:
    torch.manual_seed(0)
    pairs = [problem(split) for split in range(10) for _ in RATES]
    networks = [create(name, num_classes=1, in_channels=6).double() for _ in pairs]
    work = (networks, [train for train, _ in pairs], [test for _, test in pairs], [*RATES] * 10)
    sides = {"ensemble": all_at_once, "loop": one_after_the_other, "processes": in_two_processes}
    seconds = interleaved({side: partial(function, *work) for side, function in sides.items()}, 3)
    return [
        Row(f"{name}: loop, two threads", "time", seconds["ensemble"], seconds["loop"], 1 / 3),
        Row(f"{name}: two processes", "time", seconds["ensemble"], seconds["processes"], 1 / 1.5),
    ]


if __name__ == "__main__":
    torch.set_num_threads(2)
    report("ensemble", [row for kind in ("sp", "gmp") for row in compare(f"gmp/mlp1-{kind}")])
