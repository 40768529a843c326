"""What is conspicuous in a layer, in plain language, with the evidence and the conversion that would address it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from relucid.inspect.examination import Layer

ALIKE = 0.99  # mean |cosine| of the phases' outgoing weights from which a layer treats both alike


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing of one layer."""

    layer: str
    kind: str  #: "paired", "twins", a key of `Activity.kinds`, "one phase" or "undone split"
    sentence: str
    evidence: dict[str, Any]
    suggestion: str  #: a call of `relucid.convert`, or ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def findings_of(layer: Layer) -> Iterator[Finding]:
    """Yield what is conspicuous in a layer: pairs, sides of boundaries, phases."""
    yield from _pairs(layer)
    if layer.rectified.kind in ("crelu", "avr"):
        yield from _phases(layer)
    else:
        yield from _sides(layer)


def _pairs(layer: Layer) -> Iterator[Finding]:
    r = layer.rectified
    for source in (s for s in r.sources if s.name in layer.pairing):
        found, name = layer.pairing[source.name], source.name
        if (
            found.mutual and r.kind == "relu" and r.scale is not None
        ):  # in a sum of branches none can be merged
            saved = len(found.mutual) * (source.weight[0].numel() + (source.bias is not None))
            sentence = (
                f"{name}: {found.share:.0%} of filters have an opposite partner (random: {found.random_share:.1%}): "
                f"to_crelu(mode='merge') would save {saved:,} weights"
            )
            shares = {"share": found.share, "random_share": found.random_share, "saved": saved}
            call = _call("to_crelu", layer, mode="merge")
            yield Finding(layer.name, "paired", sentence, {"pairs": found.mutual, **shares}, call)
        if twins := _indices(found.twins):
            sentence = f"{name}: {len(twins)} of {len(found.twins)} filters have a nearly identical twin"
            yield Finding(layer.name, "twins", sentence, {"units": twins}, "")


def _sides(layer: Layer) -> Iterator[Finding]:
    activity = layer.activity
    if activity is None:
        return
    on = f"on {activity.inputs} inputs"
    longest = activity.shell[1] if activity.shell else 0.0
    what = {
        "dead": f"units are dead {on}",
        "always on": f"units are never off {on}",
        "nearly linear": f"units are off at most 1% of the time {on}",
        "outside the data": f"boundaries lie outside the data (inputs are at most {longest:.3g} long)",
    }
    revive = (
        "to_crelu(mode='expand') would give them their other phase",
        _call("to_crelu", layer, mode="expand"),
    )
    move = "to_geometric would let their boundaries move steadily", _call("to_geometric", layer)
    for kind, mask in activity.kinds().items():
        if units := _indices(mask):
            remedy, call = revive if kind == "dead" else move
            sentence = f"{layer.name}: {len(units)} of {len(mask)} {what[kind]}: {remedy}"
            yield Finding(layer.name, kind, sentence, {"units": units, "inputs": activity.inputs}, call)


def _phases(layer: Layer) -> Iterator[Finding]:
    activity, name = layer.activity, layer.name
    if activity is not None and (units := _indices(activity.dead | activity.always_on)):
        sentence = f"{name}: {len(units)} of {len(activity.dead)} units have one phase only on {activity.inputs} inputs"
        yield Finding(name, "one phase", sentence, {"units": units, "inputs": activity.inputs}, "")
    for reader, found in layer.phase_correlation.items():
        if found.pair[0] >= ALIKE:
            sentence = f"{name}: {reader} undoes the split, both phases get the same weights up to sign"
            yield Finding(name, "undone split", sentence, {"reader": reader, "pair": found.pair[0]}, "")


def _indices(mask: Tensor) -> list[int]:
    indices: list[int] = mask.nonzero().flatten().tolist()
    return indices


def _call(conversion: str, layer: Layer, **options: str) -> str:
    sources = layer.rectified.sources
    name = sources[0].name if len(sources) == 1 else layer.rectified.name
    arguments = "".join(f", {option}={value!r}" for option, value in options.items())
    return f"{conversion}(model, example, layers=[{name!r}]{arguments})"
