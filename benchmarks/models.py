"""A training step of AGD-Net against DenseNet, and against one convolution for every pair of layers.

All three do the same multiply-adds. One convolution a pair costs more calls and more passes over memory, which
weighs most in small batches; in larger ones the convolutions take most of the time, of ours as of the other.

Run it with nothing else on the machine: ``python benchmarks/models.py``.
"""

import runpy
from pathlib import Path

import torch
import torch.nn.functional as F
from measure import Row, interleaved, report

from relucid.models import create

LITERAL = Path(__file__).parents[1] / "tests" / "models" / "literal.py"


def step(net, images, labels):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)

    def run():
        optimizer.zero_grad()
        F.cross_entropy(net(images), labels).backward()
        optimizer.step()

    return run


def rows(batch, repeats):
    images, labels = torch.randn(batch, 3, 32, 32), torch.arange(batch) % 10
    agdnet = create("structure/agdnet40", num_classes=10)
    nets = {
        "DenseNet": create("structure/densenet40", num_classes=10),
        "one convolution a pair": runpy.run_path(str(LITERAL))["literal"](agdnet),
        "AGD-Net": agdnet,
    }
    seconds = interleaved({name: step(net, images, labels) for name, net in nets.items()}, repeats)
    bars = {"DenseNet": 1.25, "one convolution a pair": 0.5}
    return [
        Row(
            f"AGD-Net (k = 12, L = 40) / {name}, batch {batch}",
            "time",
            seconds["AGD-Net"],
            seconds[name],
            bar,
        )
        for name, bar in bars.items()
    ]


def main():
    torch.manual_seed(0)
    report("models", [*rows(2, repeats=15), *rows(16, repeats=7), *rows(64, repeats=3)])


if __name__ == "__main__":
    main()
