"""Every conversion of networks written by others: exact on another size and batch in both modes, or why it is refused.

    pip install monai transformers deepsea && pip install --no-deps pytorchcv torchcrepe
    python benchmarks/conversions_table.py

Writes docs/conversions.md. The last two packages ask for torchvision and torchaudio, which the networks used here
do not need. CREPE has its published weights; the others have random ones, and statistics from random inputs.
"""

import argparse
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
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
from relucid.convert.copies import ResettableCopy
from relucid.convert.difference import difference
from relucid.convert.examples import examples_of
from relucid.convert.tape import recorded
from relucid.inspect.execution import record

LIMIT = 1e-10  # of the largest output, in float64
PAGE = Path(__file__).parents[1] / "docs" / "conversions.md"
EXACT = re.compile(r"\S+, \S+; \d+(?: of \d+)?; \S+ s$")
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
TOTALS = {  # what each of them counts
    "to_crelu": "activations",
    "merge": "activations",
    "to_geometric": "layers with weights",
    "fuse": "batch norms",
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


def cell(built: Built, name: str) -> str:
    """The largest differences, how much of what there is has changed, and the time; or why it is refused."""
    model, example, other = built
    convert, in_training = CONVERSIONS[name]
    begin = time.process_time()
    try:
        found = convert(model, example)
    except ConversionError as error:
        sentence = str(error).replace(str(Path(torch.__file__).parents[1]) + "/", "")
        return sentence.replace(str(PAGE.parents[1]) + "/", "").replace("\n", " ")
    seconds = time.process_time() - begin
    if not isinstance(found.model, type(model)):
        raise AssertionError(f"{name} of {type(model).__name__} is a {type(found.model).__name__}")
    outputs, gradients = differences(model, found.model, other, in_training)
    if outputs > LIMIT:
        raise AssertionError(f"{name} of {type(model).__name__} differs by {outputs:.1g} on another size")
    return f"{outputs:.0e}, {gradients:.0e}; {changed(model, example, found, name)}; {seconds:.1f} s"


def changed(model: nn.Module, example: Any, found: Conversion, name: str) -> str:
    """How much a conversion has changed: activations, layers, batch norms that are gone, or betas that are new."""
    if name == "to_heavy_ball":
        return str(sum(p.numel() for n, p in found.model.named_parameters() if "beta" in n))
    if name not in ("to_crelu", "merge", "to_geometric"):
        before, after = (
            sum(isinstance(m, BatchNormNd) for m in net.modules()) for net in (model, found.model)
        )
        return f"{before - after} of {before}"
    nodes = record(model, example).nodes
    weighted = name == "to_geometric"
    there = {node.name for node in nodes if (node.has_weight if weighted else node.kind is not None)}
    return f"{sum(c.status == 'changed' for c in found.changes if c.name in there)} of {len(there)}"


def differences(model: nn.Module, net: nn.Module, other: Any, in_training: bool) -> tuple[float, float]:
    """The largest relative differences of outputs, and of gradients of the inputs, on another input."""
    outputs = gradients = 0.0
    (example,) = examples_of(model, other)
    for training in (False, True) if in_training else (False,):
        before, after = (
            recorded(ResettableCopy(m), example, None, training=training, backward=True, layers=False)
            for m in (model, net)
        )
        outputs = max(outputs, difference(before.outputs, after.outputs)[1])
        pairs = zip(before.inputs, after.inputs, strict=True)
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        gradients = max(gradients, difference([a for a, _ in known], [b for _, b in known])[1])
    return outputs, gradients


def row(name: str) -> tuple[str, list[str]]:
    """The first cell of a network's row, and the others."""
    torch.manual_seed(0)
    what, build = NETWORKS[name]
    built = prepared(build())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnchangedWarning)  # the cell says "0 of ..."
        return f"{name}: {what}", [cell(built, conversion) for conversion in CONVERSIONS]


def rows_of(page: str) -> dict[str, tuple[str, list[str]]]:
    """The rows of a page by the network's name: its first cell, and the others, with notes in the place of numbers."""
    table = page.split(MARK)[-1]
    notes = dict(re.findall(r"^(\d+)\. (.+)$", table, re.MULTILINE))
    found = {}
    for line in table.splitlines():
        first, *cells = line.strip("| ").split(" | ")
        name = next((n for n, (what, _) in NETWORKS.items() if first == f"{n}: {what}"), None)
        if name is not None and len(cells) == len(CONVERSIONS):
            found[name] = (
                first,
                [re.sub(r"^refused \((\d+)\)$", lambda m: notes[m[1]], cell) for cell in cells],
            )
    return found


def page_of(before: str, rows: Mapping[str, tuple[str, list[str]]]) -> str:
    """The page with these rows, in the order of the networks, and its notes numbered."""
    notes: list[str] = []
    lines = []
    for name in NETWORKS:
        if name not in rows:
            continue
        first, cells = rows[name]
        for k, text in enumerate(cells):
            if not EXACT.match(text):
                if text not in notes:
                    notes.append(text)
                cells[k] = f"refused ({notes.index(text) + 1})"
        lines.append(f"| {first} | " + " | ".join(cells) + " |")
    head = "| network | " + " | ".join(CONVERSIONS) + " |\n" + "|---" * (len(CONVERSIONS) + 1) + "|"
    footnotes = "\n".join(f"{k}. {note}" for k, note in enumerate(notes, 1))
    table = "\n".join([head, *lines, totals(lines)])
    missing = ", ".join(f"`{name}`" for name in NETWORKS if name not in rows)
    table = f"Not measured with this version: {missing}.\n\n{table}" if missing else table
    return f"{before.split(MARK)[0]}{MARK}\n\n{table}\n\nRefused:\n\n{footnotes}\n"


def totals(lines: list[str]) -> str:
    """The last row: what has changed in all networks together."""
    cells = [line.strip("| ").split(" | ")[1:] for line in lines]
    sums = []
    for column, name in enumerate(CONVERSIONS):
        counts = [re.search(r"; (\d+) of (\d+);", row[column]) for row in cells]
        done, there = (sum(int(found[k]) for found in counts if found) for k in (1, 2))
        sums.append(f"{done} of {there} {TOTALS[name]}" if name in TOTALS else "")
    return "| all together | " + " | ".join(sums) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description="With names, only their rows are made anew.")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.names or NETWORKS:
        begin = time.perf_counter()
        try:
            made = row(name)
        except ModuleNotFoundError as missing:
            sys.exit(f"{name} needs {missing.name}; see the first lines of this file")
        page = PAGE.read_text()
        PAGE.write_text(page_of(page, {**rows_of(page), name: made}))
        print(*made, f"{time.perf_counter() - begin:.0f} s", sep=" | ", flush=True)


if __name__ == "__main__":
    main()
