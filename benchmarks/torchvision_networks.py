"""How many of torchvision's classifiers convert: one number, in float32, on inputs that no conversion has seen.

    pip install --no-deps torchvision==0.28.0
    python benchmarks/torchvision_networks.py [NAME ...]

Writes benchmarks/torchvision.json: per network and conversion what has changed of what there is, the largest difference
of an output relative to the largest output, and seconds of the processor; or the error. Weights are random, norms have
seen two batches.
"""

import argparse
import json
import resource
import time
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from conversions_table import CONVERSIONS, brief, changed, write
from torch import nn

from relucid.convert import ConversionError
from relucid.convert.difference import difference

RESULTS = Path(__file__).with_name("torchvision.json")
SIZES = {"vit": 224, "maxvit": 224, "inception_v3": 299, "alexnet": 96}  # of images; 64 for all others
NAMES = ("to_crelu", "to_geometric", "fuse")
MEMORY = 16 << 30  # bytes that a process may take


def zoo() -> ModuleType:
    """The networks of torchvision; a build for another torch lacks compiled operators, which no classifier needs."""
    try:
        from torchvision import models
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        zoo.library = library  # type: ignore[attr-defined]
        from torchvision import models
    return models


def built(name: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A network in evaluation, an example, and another input."""
    torch.manual_seed(0)
    size = next((s for prefix, s in SIZES.items() if name.startswith(prefix)), 64)
    options = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    network = getattr(zoo(), name)(weights=None, **options)
    for parameter in network.parameters():
        if parameter.dim() > 1 and not parameter.any():
            nn.init.normal_(parameter, std=0.02)  # a new ViT returns zeros, which would show nothing
    example, other = torch.randn(2, 3, size, size), torch.randn(2, 3, size, size)
    with torch.no_grad():
        for _ in range(2):
            network(example)
    return network.eval(), example, other


def row(name: str) -> dict[str, Any]:
    """What every conversion does to a network."""
    try:
        network, example, other = built(name)
        with torch.no_grad():
            before = network(other)
    except (MemoryError, RuntimeError) as error:
        return {"error": str(error)}
    found: dict[str, Any] = {"weights": sum(p.numel() for p in network.parameters())}
    for conversion in NAMES:
        begin = time.process_time()
        try:
            made = CONVERSIONS[conversion][0](network, example)
        except (ConversionError, MemoryError) as error:
            found[conversion] = {"error": str(error)}
            continue
        seconds = round(time.process_time() - begin, 1)
        with torch.no_grad():
            apart = difference([before], [made.model.eval()(other)])[1]
        counts = changed(network, example, made, conversion)
        found[conversion] = counts | {"outputs": brief(apart), "seconds": seconds}
        del made
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description="With names, their rows are made again; without, those not there."
    )
    parser.add_argument("names", nargs="*")
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    missing = [name for name in zoo().list_models(module=zoo()) if name not in known]
    names = parser.parse_args().names or missing
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    for name in names:
        made = row(name)
        write(RESULTS, {name: made})
        print(name, made, flush=True)


if __name__ == "__main__":
    main()
