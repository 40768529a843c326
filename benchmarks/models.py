"""A training step of AGD-Net against DenseNet, and against one convolution for every pair of layers.

All three do the same multiply-adds. One convolution a pair costs more calls and more passes over memory, which
weighs most in small batches; in larger ones the convolutions take most of the time, of ours as of the other.

Run it with nothing else on the machine: ``python benchmarks/models.py``.
"""

import runpy
from functools import partial
from pathlib import Path

import torch
from measure import LAYOUTS, Row, device_asked_for, interleaved, report, threads, training_step

from relucid.models import create

LITERAL = Path(__file__).parents[1] / "tests" / "models" / "literal.py"


step = partial(training_step, lr=0.1, nesterov=True, weight_decay=1e-4)


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


def over_layouts(batch, repeats):
    """Against DenseNet, contiguous and channels last, one thread and two."""
    found = []
    for name, layout in LAYOUTS.items():
        images = torch.randn(batch, 3, 32, 32).to(memory_format=layout)
        labels = torch.arange(batch) % 10
        nets = {
            name: create(f"structure/{name}40", num_classes=10).to(memory_format=layout)
            for name in ("densenet", "agdnet")
        }
        for count in (1, 2):
            with threads(count):
                seconds = interleaved({n: step(net, images, labels) for n, net in nets.items()}, repeats)
            case = f"AGD-Net / DenseNet, {name}, threads: {count}"
            found.append(Row(case, "time", seconds["agdnet"], seconds["densenet"], 1.25))
    return found


def main():
    device_asked_for(__doc__)
    torch.manual_seed(0)
    compared = [*rows(2, repeats=15), *rows(16, repeats=5), *rows(64, repeats=2)]
    report("models", compared + over_layouts(8, repeats=5))


if __name__ == "__main__":
    main()
