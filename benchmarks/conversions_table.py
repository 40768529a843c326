"""Every conversion of networks written by others: exact on another size and batch in both modes, or why it is refused.

    pip install monai transformers deepsea && pip install --no-deps pytorchcv torchcrepe
    python benchmarks/conversions_table.py

Writes benchmarks/conversions.json, from which docs/pages.py makes a page. The last two packages ask for torchvision and
torchaudio, which the networks used here do not need. CREPE has its published weights; the others have random ones, and
statistics from random inputs.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from convert_networks import NETWORKS, Built
from torch import Tensor, nn

from relucid._torch import BatchNormNd, tree_map_only
from relucid.convert import (
    Conversion,
    ConversionError,
    UnchangedWarning,
    fuse,
    to_crelu,
    to_geometric,
    to_heavy_ball,
)
from relucid.convert.difference import difference
from relucid.convert.examples import examples_of
from relucid.convert.tape import recorded
from relucid.inspect.execution import record

LIMIT = 1e-10  # of the largest output, in float64
RESULTS = Path(__file__).with_name("conversions.json")


def chain(model: nn.Module, example: Any) -> Conversion:
    return fuse(to_geometric(to_crelu(model, example).model, example).model, example)


# Whether a conversion promises the same in training too.
CONVERSIONS: dict[str, tuple[Callable[[nn.Module, Any], Conversion], bool]] = {
    "to_crelu": (to_crelu, True),
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


def measured(built: Built, name: str) -> dict[str, Any]:
    """How much of what there is has changed, the largest differences, and the time; or why it is refused."""
    model, example, other = built
    convert, in_training = CONVERSIONS[name]
    begin = time.process_time()
    try:
        conversion = convert(model, example)
    except ConversionError as error:
        return {"refused": str(error)}
    seconds = round(time.process_time() - begin, 1)
    if not isinstance(conversion.model, type(model)):
        raise AssertionError(f"{name} of {type(model).__name__} is a {type(conversion.model).__name__}")
    outputs, gradients = differences(model, conversion.model, other, in_training)
    if outputs > LIMIT:
        raise AssertionError(f"{name} of {type(model).__name__} differs by {outputs:.1g} on another size")
    counts = changed(model, example, conversion, name)
    return counts | {"outputs": brief(outputs), "gradients": brief(gradients), "seconds": seconds}


def changed(model: nn.Module, example: Any, conversion: Conversion, name: str) -> dict[str, Any]:
    """How many activations, layers or batch norms (that are gone) have changed of those there are; or new betas."""
    net = conversion.model
    if name == "to_heavy_ball":
        return {"changed": sum(p.numel() for n, p in net.named_parameters() if "beta" in n)}
    if name not in ("to_crelu", "to_geometric"):
        before, after = (sum(isinstance(m, BatchNormNd) for m in net.modules()) for net in (model, net))
        return {"changed": before - after, "there": before}
    nodes = record(model, example).nodes
    weighted = name == "to_geometric"
    there = {node.name for node in nodes if (node.has_weight if weighted else node.kind is not None)}
    done = sum(c.status == "changed" for c in conversion.changes if c.name in there)
    return {"changed": done, "there": len(there)}


def differences(model: nn.Module, net: nn.Module, other: Any, in_training: bool) -> tuple[float, float]:
    """The largest relative differences of outputs, and of gradients of the inputs, on another input."""
    outputs = gradients = 0.0
    (example,) = examples_of(model, other)
    for training in (False, True) if in_training else (False,):
        before, after = (
            recorded(m, example, None, training=training, backward=True, layers=False) for m in (model, net)
        )
        outputs = max(outputs, difference(before.outputs, after.outputs)[1])
        pairs = zip(before.inputs, after.inputs, strict=True)
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        gradients = max(gradients, difference([a for a, _ in known], [b for _, b in known])[1])
    return outputs, gradients


def brief(value: float) -> float:
    """A number in two digits."""
    return float(f"{value:.2g}")


def row(name: str) -> dict[str, Any]:
    """What is special about a network, and what every conversion does to it."""
    torch.manual_seed(0)
    what, build = NETWORKS[name]
    built = prepared(build())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnchangedWarning)  # the row says so
        return {"what": what} | {conversion: measured(built, conversion) for conversion in CONVERSIONS}


def write(path: Path, rows: dict[str, Any]) -> None:
    """Put rows into a file of results, in the place of earlier ones of the same networks."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted((known | rows).items())]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="With names, only their rows are made again.")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.names or NETWORKS:
        begin = time.perf_counter()
        try:
            made = row(name)
        except ModuleNotFoundError as missing:
            sys.exit(f"{name} needs {missing.name}; see the first lines of this file")
        write(RESULTS, {name: made})
        print(name, made, f"{time.perf_counter() - begin:.0f} s", sep=" | ", flush=True)


if __name__ == "__main__":
    main()
