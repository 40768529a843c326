"""A continual learner in a plain loop: the labels change again and again, units die, and a watch acts when they do.

python examples/continual.py
"""

import torch
from torch import Tensor, nn

import relucid
from relucid.data import digits

DIGITS, EPOCHS, BATCH, TASKS = 600, 15, 60, 12


def fitted(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """The percentage of labels that the network gets right."""
    return 100 * (net(x).argmax(1) == y).double().mean().item()


def learn(net: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> float:
    """Train on one task; the percentage of labels fitted at the end."""
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()
    return fitted(net, x, y)


def live(remedy: str) -> list[float]:
    """The percentage fitted of every task, with a remedy that acts once most units of a layer are dead."""
    torch.manual_seed(0)
    x = digits().train.inputs[:DIGITS].flatten(1) / 8 - 1
    hidden = [m for _ in range(3) for m in (nn.Linear(64, 64), nn.ReLU())]
    net = nn.Sequential(*hidden, nn.Linear(64, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005)

    def act(watch: relucid.Watch) -> None:
        before = net(x)
        if remedy == "to_crelu":
            relucid.to_crelu(net, x[:2], inplace=True, optimizer=optimizer)
        elif remedy == "redo":
            relucid.redo(net, watch.inputs, optimizer=optimizer)
        moved = float((net(x) - before).detach().abs().max())
        print(f"  step {watch.time}: {watch.metrics['worst dead']:.0%} dead; outputs moved by {moved:.0e}")

    relucid.Watch(net, every=500, act=act, log=lambda metrics, step: None).attach(optimizer)
    return [learn(net, optimizer, x, torch.randint(10, (DIGITS,))) for _ in range(TASKS)]


def main() -> None:
    for remedy in ("none", "to_crelu", "redo"):
        print(remedy)
        scores = live(remedy)
        print(f"  first tasks: {sum(scores[:5]) / 5:.1f} % fitted, last tasks: {sum(scores[-5:]) / 5:.1f} %")


if __name__ == "__main__":
    main()
