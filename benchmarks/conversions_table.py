"""Every conversion of networks written by others: exact on another size and batch in both modes, or why it is refused.

    pip install monai transformers deepsea && pip install --no-deps pytorchcv torchcrepe
    python benchmarks/conversions_table.py

Writes docs/conversions.md. The last two packages ask for torchvision and torchaudio, which the networks used here
do not need. CREPE has its published weights; the others have random ones, and statistics from random inputs.
"""

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from convert_networks import NETWORKS, Built
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from relucid.convert import Conversion, ConversionError, fuse, to_crelu, to_geometric, to_heavy_ball
from relucid.convert.check import difference, gradient_difference, run

LIMIT = 1e-10  # of the largest output, in float64
PAGE = Path(__file__).parents[1] / "docs" / "conversions.md"
MARK = "<!-- written by benchmarks/conversions_table.py -->"


def chain(model: nn.Module, example: Any) -> Conversion:
    return fuse(to_geometric(to_crelu(model, example).model, example).model, example)


# Whether a conversion promises the same in training too.
CONVERSIONS: dict[str, tuple[Callable[[nn.Module, Any], Conversion], bool]] = {
    "to_crelu": (to_crelu, True),
    "merge": (partial(to_crelu, mode="merge"), True),
    "to_geometric": (to_geometric, True),
    "to_heavy_ball": (to_heavy_ball, True),
    "fuse": (fuse, False),
    "crelu, geometric, fused": (chain, False),
}


def prepared(built: Built) -> Built:
    """In float64, after two steps of the norms on the example."""
    model, *inputs = built
    example, other = (tree_map_only(Tensor, _double, x) for x in inputs)
    model = model.double().train()
    with torch.no_grad():
        for _ in range(2):
            model(**example) if isinstance(example, dict) else model(example)
    return model.eval(), example, other


def _double(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x


def cell(built: Built, name: str, notes: list[str]) -> str:
    """The largest differences and the numbers of layers changed, kept and refused, or the number of a note."""
    model, example, other = built
    convert, in_training = CONVERSIONS[name]
    try:
        found = convert(model, example)
    except ConversionError as error:
        sentence = str(error).replace(str(Path(torch.__file__).parents[1]) + "/", "")
        sentence = sentence.replace(str(PAGE.parents[1]) + "/", "").replace("\n", " ")
        if sentence not in notes:
            notes.append(sentence)
        return f"refused ({notes.index(sentence) + 1})"
    outputs, gradients = differences(model, found.model, other, in_training)
    if outputs > LIMIT:
        raise AssertionError(f"{name} of {type(model).__name__} differs by {outputs:.1g} on another size")
    counts = Counter(change.status for change in found.changes)
    layers = "/".join(str(counts[status]) for status in ("changed", "kept", "refused"))
    return f"{outputs:.0e}, {gradients:.0e}; {layers}"


def differences(model: nn.Module, net: nn.Module, other: Any, in_training: bool) -> tuple[float, float]:
    """The largest relative differences of outputs, and of gradients of a training step, on another input."""
    outputs = gradients = 0.0
    for training in (False, True) if in_training else (False,):
        before, after = (run(m, other, training) for m in (model, net))
        outputs = max(outputs, difference(before.outputs, after.outputs)[1])
        gradients = max(gradients, gradient_difference(before, after, ""))
    return outputs, gradients


def row(name: str, notes: list[str], build: Callable[[], Built]) -> str:
    torch.manual_seed(0)
    built = prepared(build())
    return f"| {name}: {NETWORKS[name][0]} | " + " | ".join(cell(built, c, notes) for c in CONVERSIONS) + " |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: list[str] = []
    notes: list[str] = []
    for name in options.names or NETWORKS:
        begin = time.perf_counter()
        try:
            rows.append(row(name, notes, NETWORKS[name][1]))
        except ModuleNotFoundError as missing:
            sys.exit(f"{name} needs {missing.name}; see the first lines of this file")
        print(rows[-1], f"{time.perf_counter() - begin:.0f} s", flush=True)
    if options.names:
        return
    head = "| network | " + " | ".join(CONVERSIONS) + " |\n" + "|---" * (len(CONVERSIONS) + 1) + "|"
    footnotes = "\n".join(f"{k}. {note}" for k, note in enumerate(notes, 1))
    before = PAGE.read_text().split(MARK)[0]
    table = "\n".join([head, *rows])
    PAGE.write_text(f"{before}{MARK}\n\n{table}\n\nRefused:\n\n{footnotes}\n")


if __name__ == "__main__":
    main()
