"""What is conspicuous in a layer, in plain language, with the evidence and the conversion that would address it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from relucid.inspect.examine import Layer

ALIKE = 0.99  # mean |cosine| of the phases' outgoing weights from which a reader treats both alike


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing of one layer."""

    layer: str
    kind: str  #: "paired", "twins", "dead", "always on", "nearly linear", "outside the data", "one phase", "undone split"
    sentence: str
    evidence: dict[str, Any]
    suggestion: str  #: a call of `relucid.convert`, or ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def findings_of(layer: Layer) -> Iterator[Finding]:
    """Yield what is conspicuous in a layer."""
    yield from _pairs(layer)
    yield from _sides(layer)
    for reader, found in layer.phase_correlation.items():
        if found.pair[0] >= ALIKE:
            sentence = f"{layer.name}: {reader} treats both phases alike (|cosine| {found.pair[0]:.2f}): the split is undone"
            yield Finding(layer.name, "undone split", sentence, {"reader": reader, "pair": found.pair[0]}, "")


def _pairs(layer: Layer) -> Iterator[Finding]:
    r = layer.rectified
    for source in r.sources:
        found = layer.pairing.get(source.name)
        if found is None:
            continue
        if found.mutual and r.kind == "relu" and r.scale is not None:  # in a sum of branches no pair can be merged
            saved = len(found.mutual) * (source.weight[0].numel() + (source.bias is not None))
            sentence = (
                f"{source.name}: {found.share:.0%} of filters have an opposite partner "
                f"(random: {found.random_share:.1%}): to_crelu(mode='merge') would save {saved:,} weights"
            )
            evidence = {"pairs": found.mutual, "share": found.share, "random_share": found.random_share, "saved": saved}
            yield Finding(layer.name, "paired", sentence, evidence, _call("to_crelu", layer, mode="merge"))
        twins = _indices(found.twins)
        if twins:
            sentence = f"{source.name}: {len(twins)} of {len(found.twins)} filters have a nearly identical twin"
            yield Finding(layer.name, "twins", sentence, {"units": twins}, "")


def _sides(layer: Layer) -> Iterator[Finding]:
    activity, name = layer.activity, layer.name
    if activity is None:
        return
    units, inputs = len(activity.active), activity.inputs
    if layer.rectified.kind in ("crelu", "avr"):
        one = _indices(activity.dead | activity.always_on)
        if one:
            sentence = f"{name}: {len(one)} of {units} units have one phase only on {inputs} inputs: they are linear there"
            yield Finding(name, "one phase", sentence, {"units": one, "inputs": inputs}, "")
        return
    expand, geometric = _call("to_crelu", layer, mode="expand"), _call("to_geometric", layer)
    advice = {
        "dead": (f"units are dead on {inputs} inputs", "to_crelu(mode='expand') would give them their other phase", expand),
        "always on": (f"units are never off on {inputs} inputs", "to_geometric would let their boundaries move", geometric),
        "nearly linear": (f"units are off on at most 1% of {inputs} inputs", "to_geometric would let their boundaries move", geometric),
        "outside the data": (
            f"boundaries lie outside the data (inputs are at most {activity.shell[1] if activity.shell else 0:.3g} long)",
            "to_geometric would let them move back steadily",
            geometric,
        ),
    }
    for kind, mask in activity.kinds().items():
        found = _indices(mask)
        if found:
            what, remedy, suggestion = advice[kind]
            sentence = f"{name}: {len(found)} of {units} {what}: {remedy}"
            yield Finding(name, kind, sentence, {"units": found, "inputs": inputs}, suggestion)


def _indices(mask: Tensor) -> list[int]:
    indices: list[int] = mask.nonzero().flatten().tolist()
    return indices


def _call(conversion: str, layer: Layer, **options: str) -> str:
    sources = layer.rectified.sources
    name = sources[0].name if len(sources) == 1 else layer.rectified.name
    arguments = "".join(f", {option}={value!r}" for option, value in options.items())
    return f"{conversion}(model, example, layers=[{name!r}]{arguments})"
