"""What `to_crelu` and `to_geometric` say of every layer of every network of docs/conversions.md, and of odd small ones.

    python benchmarks/conversion_reports.py              # what has changed since tests/convert/reports.json was written
    python benchmarks/conversion_reports.py --write      # writes it anew
    python benchmarks/conversion_reports.py NAME ...     # of these networks only

A change of how conversions work must not change what they do: tests/convert/test_reports.py compares the statuses of
small networks each time, and of all others among the slow tests. Reasons are compared here only, by a reader.
docs/conversions.md names the packages; those that cannot be imported are left out and named.
"""

import argparse
import json
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from convert_networks import NETWORKS
from torch import nn

from relucid.convert import ConversionError, to_crelu, to_geometric

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "convert" / "reports.json"
CONVERSIONS = {"to_crelu": to_crelu, "to_geometric": to_geometric}
Built = tuple[nn.Module, Any]


def by_others(name: str) -> Built:
    """A network of the page in float32, after two steps of its norms on the example."""
    torch.manual_seed(0)
    model, example, _ = NETWORKS[name][1]()
    model.train()
    with torch.no_grad():
        for _ in range(2):
            model(**example) if isinstance(example, dict) else model(example)
    return model.eval(), example


def small(name: str) -> Built:
    """One of tests/convert/networks.py, whose norms differ from channel to channel."""
    from tests.convert.networks import NETWORKS as SMALL
    from tests.convert.networks import trained_a_little

    torch.manual_seed(0)
    return trained_a_little(SMALL[name](), torch.float32), torch.randn(4, 3, 8, 8)


def odd(name: str) -> Built:
    """One odd piece of tests/convert/odd.py."""
    from tests.convert.odd import Odd

    random.seed(0)
    torch.manual_seed(0)
    return Odd([name], "tensor").double(), torch.randn(2, 3, 8, 8, dtype=torch.float64)


def builders() -> dict[str, Callable[[], Built]]:
    """All networks by name: "others/...", "small/...", "odd/..."."""
    sys.path.insert(0, str(ROOT))
    from tests.convert.networks import NETWORKS as SMALL
    from tests.convert.odd import EXTENDED, PIECES

    found: dict[str, Callable[[], Built]] = {f"small/{name}": partial(small, name) for name in SMALL}
    found |= {f"odd/{name}": partial(odd, name) for name in PIECES if name not in EXTENDED}
    return found | {f"others/{name}": partial(by_others, name) for name in NETWORKS}


def report(built: Built, convert: Callable[..., Any]) -> dict[str, Any]:
    """Status and reason of every layer, or the error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = convert(*built)
    except ConversionError as error:
        return {"error": str(error).replace(str(Path(torch.__file__).parents[1]) + "/", "")}
    return {change.name: [change.status, change.reason] for change in found.changes}


def reports(name: str) -> dict[str, dict[str, Any]]:
    """What each conversion says of a network."""
    build = builders()[name]
    return {conversion: report(build(), convert) for conversion, convert in CONVERSIONS.items()}


def load() -> dict[str, dict[str, Any]]:
    """The reports of the file by network and conversion."""
    if not FILE.exists():
        return {}
    packed = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        name: {conversion: _unpacked(about) for conversion, about in found.items()}
        for name, found in packed.items()
    }


def save(known: dict[str, dict[str, Any]]) -> None:
    """Write one line per network; layers with the same status and reason stand together."""
    lines = []
    for name, found in sorted(known.items()):
        packed = {conversion: _packed(about) for conversion, about in found.items()}
        lines.append(f"{json.dumps(name)}: {json.dumps(packed, separators=(',', ':'))}")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _packed(found: dict[str, Any]) -> Any:
    if "error" in found:
        return found["error"]
    grouped: dict[str, dict[str, list[str]]] = {}
    for layer, (status, reason) in found.items():
        grouped.setdefault(status, {}).setdefault(reason, []).append(layer)
    return grouped


def _unpacked(about: Any) -> dict[str, Any]:
    if isinstance(about, str):
        return {"error": about}
    return {
        layer: [status, reason]
        for status, reasons in about.items()
        for reason, layers in reasons.items()
        for layer in layers
    }


def statuses(found: dict[str, Any]) -> dict[str, str]:
    """The part of a report that must not change."""
    return {layer: "error" if layer == "error" else about[0] for layer, about in found.items()}


def differences(name: str, before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """One line per layer with another status or reason."""
    for conversion in CONVERSIONS:
        old, new = before.get(conversion, {}), now[conversion]
        for layer in dict.fromkeys((*old, *new)):
            if old.get(layer) != new.get(layer):
                what = "reason" if statuses(old).get(layer) == statuses(new).get(layer) else "STATUS"
                yield f"{what} {name}, {conversion}, {layer}: {old.get(layer)} -> {new.get(layer)}"


def main() -> bool:
    """Print what has changed; whether any status has."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="by default all")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    known = load()
    missing, changed = [], []
    for name in options.names or builders():
        try:
            made = reports(name)
        except ImportError as error:
            missing.append(f"{name} ({error})")
            continue
        changed += (lines := list(differences(name, known.get(name, {}), made)))
        if options.write:
            known[name] = made
            save(known)
        else:
            print(name, *lines, sep="\n  ", flush=True)
    counts = {what: sum(line.startswith(what) for line in changed) for what in ("STATUS", "reason")}
    print(f"{counts['STATUS']} layers with another status, {counts['reason']} with another reason")
    if missing:
        print("not tried, since packages are missing:", ", ".join(missing))
    return counts["STATUS"] > 0 and not options.write


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
