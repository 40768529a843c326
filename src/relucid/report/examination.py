"""The page of an examination: what a network has learned, layer by layer, and what would improve it."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

import plotly.graph_objects as go
from torch import Tensor

from relucid.inspect import Activity, Boundary, Examination, Finding, Suggestion, figure_of_pairs
from relucid.inspect.examination import ExaminedLayer
from relucid.printing import printable
from relucid.report.figure import PALETTE, Figure
from relucid.report.page import Grid, render, text_grid

SHORT = 16  # layers that a reader takes in at once; more are grouped by stage
SHOWN = 32  # filters that are drawn
# Measurements that the page draws itself.
DRAWN = ("pairing", "phase_correlation", "boundary", "activity")
TITLES = {"crelu": "Dead units that CReLU lets learn again", "": "Worth knowing"}


@dataclass(frozen=True)
class Provenance:
    """What was examined, as the user would name it: a network, its checkpoint, the shape of an input, data."""

    factory: str
    checkpoint: str | None = None
    example: str | None = None
    data: str | None = None
    in_python: bool = (
        False  #: whether it was examined by a call, so that calls are suggested and not commands
    )

    def options(self, *names: str) -> list[str]:
        """The given options of these names as words of a command."""
        given = {"--checkpoint": self.checkpoint, "--example": self.example, "--data": self.data}
        return [word for name in names if (value := given[name]) is not None for word in (name, value)]

    def convert(self, suggestion: Suggestion) -> str:
        """The command for a conversion of the same network; only merge uses data.

        >>> Provenance("net:build", example="1,3,8,8").convert(Suggestion("to_crelu", ("a",), "expand"))
        'relucid convert net:build --example 1,3,8,8 --to crelu --layers a -o converted-crelu'
        """
        if self.in_python:
            return str(suggestion)
        names = ["--checkpoint", "--example", *(["--data"] if suggestion.mode == "merge" else [])]
        return suggestion.command(self.factory, *self.options(*names))

    def examine(self) -> str:
        """The command or call that reproduces the page."""
        if self.in_python:
            return 'examine(model, example, data).save("page.html")'
        options = self.options("--checkpoint", "--example", "--data")
        return printable(shlex.join(["relucid", "examine", self.factory, *options, "-o", "page.html"]))


@dataclass(frozen=True)
class Remedy:
    """Findings that one conversion addresses."""

    title: str
    counts: str  #: how many of which kind
    command: str  #: "" where nothing is suggested
    sentences: Sequence[str]


@dataclass(frozen=True)
class LayerSection:
    """What the page says about one layer."""

    number: int
    name: str
    sentence: str
    lines: Sequence[str]
    figures: Sequence[Figure]


@dataclass(frozen=True)
class Stage:
    """Layers that are shown together."""

    name: str  #: "" for a network that is not grouped
    grid: Grid
    sections: Sequence[LayerSection]


def examination_page(examination: Examination, subject: Provenance) -> str:
    """Render the page of an examination."""
    stages = stages_of(examination)
    return render(
        "examination.html",
        subject=subject,
        words=words(examination),
        doubts=examination.doubts(),
        remedies=remedies(examination, subject),
        columns=examination.columns(),
        overview=overview(examination, stages) if len(stages) > 1 else None,
        stages=stages,
        unattributed=examination.unattributed,
        command=subject.examine(),
    )


def words(examination: Examination) -> str:
    """Describe the network in two sentences."""
    if not examination.layers:
        return "No layer of this network is rectified."
    units = sum(layer.rectified.units for layer in examination.layers)
    counts = _counts(examination.layers)
    notable = [f"{counts[kind]:,} are {kind}" for kind in ("dead", "always on") if kind in counts]
    pairs = [pairing for layer in examination.layers for pairing in layer.pairing.values() if pairing.others]
    paired, filters = sum(int(p.paired.sum()) for p in pairs), sum(len(p.paired) for p in pairs)
    return (
        f"{len(examination.layers)} rectified layers with {units:,} units"
        f"{': ' if notable else ''}{' and '.join(notable)}. "
        f"Of {filters:,} filters {paired:,} have an opposite partner that chance does not explain."
    )


def _counts(layers: Sequence[ExaminedLayer]) -> Counter[str]:
    """Count the conspicuous units by kind; kinds that cannot be judged are left out."""
    counts: Counter[str] = Counter()
    for layer in layers:
        kinds = {} if layer.activity is None else layer.activity.kinds()
        counts.update({kind: int(mask.sum()) for kind, mask in kinds.items()})
    return counts


def remedies(examination: Examination, subject: Provenance) -> list[Remedy]:
    """Group the findings by the conversion that they suggest; those without a suggestion are one group."""
    suggested = {suggestion.name: suggestion for suggestion in examination.suggestions()}
    groups: dict[str, list[Finding]] = {name: [] for name in suggested}
    for finding in examination.findings:
        groups.setdefault(finding.suggestion.name if finding.suggestion else "", []).append(finding)
    return [
        Remedy(
            TITLES.get(name, name),
            _kinds(findings),
            subject.convert(suggested[name]) if name else "",
            [finding.sentence for finding in findings],
        )
        for name, findings in groups.items()
    ]


def _kinds(findings: Sequence[Finding]) -> str:
    """Say how many layers have findings of which kind, as in "dead in 3 layers, twins in 1 layer"."""
    counts = Counter(finding.kind for finding in findings)
    return ", ".join(f"{kind} in {count} layer{'s' * (count > 1)}" for kind, count in counts.items())


def stages_of(examination: Examination) -> list[Stage]:
    """Group the layers by stage if there are many."""
    numbered = list(enumerate(examination.layers))
    names = _stage_names([layer.name for layer in examination.layers])
    rows = examination.rows()
    stages = []
    for name, group in groupby(numbered, key=lambda item: names[item[0]]):
        members = list(group)
        caption = f"{name}: rectified layers" if name else "Rectified layers, in order of execution"
        sections = [section(number, layer) for number, layer in members]
        links = [f"layer-{number}" for number, _ in members]
        stages.append(Stage(name, text_grid(caption, [rows[n] for n, _ in members], links), sections))
    return stages


def _stage_names(names: Sequence[str]) -> list[str]:
    """The stage of each layer: the first differing part of the paths, or every dozen layers if that does not group.

    >>> _stage_names([f"net.layer{i}.{j}.conv" for i in (1, 2) for j in range(9)])[8:10]
    ['layer1', 'layer2']
    >>> _stage_names([str(i) for i in range(30)])[11:13]
    ['layers 1 to 12', 'layers 13 to 24']
    >>> _stage_names(["conv1", "conv2"])
    ['', '']
    """
    if len(names) <= SHORT:
        return [""] * len(names)
    paths = [name.partition(" ")[0].split(".") for name in names]
    depth = len([*takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))])
    stages = [path[depth] if len(path) > depth else path[-1] for path in paths]
    if 1 < len(list(groupby(stages))) <= len(names) // 3:
        return stages
    dozen = 12
    return [
        f"layers {i - i % dozen + 1} to {min(i - i % dozen + dozen, len(names))}" for i in range(len(names))
    ]


def overview(examination: Examination, stages: Sequence[Stage]) -> Grid:
    """The table of stages, each with a link to its layers."""
    whole, rows = _counts(examination.layers), []
    for stage in stages:
        layers = [examination.layers[section.number] for section in stage.sections]
        counts, units = _counts(layers), sum(layer.rectified.units for layer in layers)
        numbers = {"layers": len(layers), "units": units, **{kind: counts[kind] for kind in whole}}
        rows.append({"stage": stage.name, **{name: f"{number:,}" for name, number in numbers.items()}})
    links = [f"stage-{number}" for number in range(len(stages))]
    return text_grid("Stages, in order of execution; each unfolds below", rows, links)


def section(number: int, layer: ExaminedLayer) -> LayerSection:
    """The section of a layer: a sentence, the measurements, the conspicuous units and the figures."""
    r, activity = layer.rectified, layer.activity
    fed = ", ".join(" → ".join((s.name, *s.through)) for s in r.sources) or "no weight"
    sentence = f"{r.units} units, {r.kind}, fed by {fed}." + (f" {r.obstacle}." if r.obstacle else "")
    summaries = [line for measured in layer.measured.values() for line in measured.summary().splitlines()]
    kinds = {} if activity is None else activity.kinds()
    listed = [f"{kind}: {_units(mask)}" for kind, mask in kinds.items() if bool(mask.any())]
    return LayerSection(number, layer.name, sentence, summaries + listed, list(figures(layer)))


def _units(mask: Tensor, most: int = 40) -> str:
    """The indices of the units, cut short if there are many.

    >>> import torch
    >>> _units(torch.tensor([True, False, True, True]), most=2)
    'units 0, 2 and 1 more'
    """
    units = mask.nonzero().flatten().tolist()
    more = f" and {len(units) - most} more" if len(units) > most else ""
    return "units " + ", ".join(map(str, units[:most])) + more


def figures(layer: ExaminedLayer) -> Iterator[Figure]:
    """Draw the figures of a layer: filters beside their partners, pairs against random, sides, boundaries, others."""
    r = layer.rectified
    for source in r.sources:
        pairs = layer.pairing.get(source.name)
        if pairs is None or not pairs.others:
            continue
        if source.weight.dim() == 4 and source.weight.shape[1] in (1, 3):
            weight = source.weight if r.scale is None else r.folded()[0]
            most = float(pairs.opposite.nan_to_num(1.0).min())
            alt = f"Filters as images, each with its most opposite one; cosines from {most:.2f} up."
            some = f"The {SHOWN} filters of {len(weight)} with the most opposite partners"
            title = f"{'Filters' if len(weight) <= SHOWN else some}, each beside its most opposite one"
            yield Figure(title, alt, figure_of_pairs(weight, pairs, columns=4, most=SHOWN))
        yield Figure("Pairs against random filters", pairs.summary(), pairs.figure())
    if layer.activity is not None:
        yield sides(layer.activity)
    if layer.boundary is not None and bool(layer.boundary.defined.any()):
        yield boundaries(layer.boundary, layer.activity)
    for name, measured in layer.measured.items():
        if name not in DRAWN:
            for title, plot in measured.figures().items():
                yield Figure(title[:1].upper() + title[1:], measured.summary(), plot)


def sides(activity: Activity) -> Figure:
    """Draw the share of places at which each unit is active, from the least to the most active unit."""
    rank = activity.active.argsort().argsort() + 1
    titles = {"xaxis_title": "units, by activity", "yaxis_title": "active on % of the data"}
    plot = go.Figure(layout={**titles, "yaxis_range": [-4, 104]})
    dead, on = activity.dead, activity.always_on
    judged = activity.sample.enough and activity.phases == 1
    kinds = [
        ("dead" if judged else "never on", dead, PALETTE[1], "x"),
        ("always on" if judged else "never off", on, PALETTE[2], "triangle-up"),
        ("switching", ~(dead | on), PALETTE[0], "circle"),
    ]
    for kind, mask, color, symbol in kinds:
        units = mask.nonzero().flatten()
        if len(units):
            plot.add_scatter(
                x=rank[units].int().numpy(),
                y=(100 * activity.active[units]).float().numpy(),
                customdata=units.int().numpy(),
                name=f"{kind} ({len(units)})",
                mode="markers",
                marker={"color": color, "symbol": symbol, "size": 6},
                hovertemplate="unit %{customdata}: %{y:.1f}%<extra></extra>",
            )
    return Figure(f"Activity on {activity.sample}", activity.summary(), plot)


def boundaries(boundary: Boundary, activity: Activity | None) -> Figure:
    """Draw the boundaries in one or two dimensions, or their distances from the origin in more.

    Where lengths of inputs are known, distances are in units of the longest: a boundary beyond 1 splits no data, and
    these are as many as the table counts. All that is farther than twice the longest input is in the last bar.
    """
    if boundary.vector.shape[1] <= 2:
        return Figure("Boundaries", boundary.summary(), boundary.figure())
    radius = boundary.radius[boundary.defined].abs().float().cpu()
    shell = None if activity is None else activity.shell
    if shell is None or shell[1] == 0:
        plot = go.Figure(
            layout={"xaxis_title": "distance of the boundary from the origin", "yaxis_title": "boundaries"}
        )
        plot.add_histogram(x=radius.numpy(), nbinsx=60, name="boundaries")
        return Figure("Distances of the boundaries", boundary.summary(), plot)
    share = radius / shell[1]
    plot = go.Figure(layout={"yaxis_title": "boundaries", "barmode": "overlay"})
    ticks = {"tickvals": [0, 0.5, 1, 1.5, 2], "ticktext": ["0", "0.5", "1", "1.5", "2+"]}
    plot.update_xaxes(
        title="distance of the boundary, in lengths of the longest input", range=[-0.02, 2.07], **ticks
    )
    sides = {"within the data": (share <= 1, PALETTE[0]), "outside": (share > 1, PALETTE[1])}
    for name, (mask, color) in sides.items():
        if bool(mask.any()):
            x, bins = share[mask].clamp(max=2.0), {"start": 0, "end": 2.05, "size": 0.05}
            plot.add_histogram(
                x=x.numpy(), xbins=bins, name=f"{name} ({int(mask.sum())})", marker_color=color
            )
    plot.add_vline(1, line_dash="dash", line_color=PALETTE[4])
    beyond = int((share > 1).sum())
    alt = f"{boundary.summary()}; inputs are {shell[0]:.3g} to {shell[1]:.3g} long; {beyond} are outside"
    return Figure("Boundaries against the data", alt, plot)
