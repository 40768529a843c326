"""A plain loop on data that change: a watch warns that units die, and the network is mended without forgetting.

python examples/keep_learning.py
"""

import logging

import torch
from torch import Tensor, nn

from relucid.convert import to_crelu
from relucid.data import digits
from relucid.inspect import Watch

DIGITS, EPOCHS, BATCH = 600, 15, 60


def learn(net: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> float:
    """Train on one task; the percentage of labels fitted at the end."""
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()
    return fitted(net, x, y)


@torch.no_grad()
def fitted(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """The percentage of labels that the network gets right."""
    return 100 * (net(x).argmax(1) == y).double().mean().item()


def main(before: int = 20, after: int = 5) -> None:
    logging.basicConfig(format="%(message)s")
    torch.manual_seed(0)
    x = digits().train.inputs[:DIGITS].flatten(1) / 8 - 1
    tasks = torch.randint(10, (before + after, DIGITS))  # every task has labels of its own
    net = nn.Sequential(
        *(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()),
        nn.Linear(64, 10),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    Watch(net, every=1000).attach(optimizer)  # or call watch.step() yourself; it logs, and warns

    scores = [learn(net, optimizer, x, y) for y in tasks[:before]]
    print(f"first tasks: {sum(scores[:5]) / 5:.1f} % fitted, last tasks: {sum(scores[-5:]) / 5:.1f} %")

    known = fitted(net, x, tasks[before - 1])
    conversion = to_crelu(
        net, x[:2], inplace=True, optimizer=optimizer
    )  # the same network, the same optimizer
    kept = fitted(net, x, tasks[before - 1])
    print(
        f"converted: outputs differ by at most {conversion.max_error:.0e}, {known:.1f} -> {kept:.1f} % still right"
    )

    scores = [learn(net, optimizer, x, y) for y in tasks[before:]]
    print(f"following tasks: {sum(scores) / len(scores):.1f} % fitted")


if __name__ == "__main__":
    main()
