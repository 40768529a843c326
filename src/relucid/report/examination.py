"""The page of an examination: what a network has learned, layer by layer, and what would improve it."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import plotly.graph_objects as go
from torch import Tensor

from relucid.inspect import Activity, Boundary, Examination, Suggestion, figure_of_pairs
from relucid.inspect.examination import Layer
from relucid.report.figure import PALETTE, Figure
from relucid.report.page import Cell, Grid, render

NUMBER = re.compile(r"[\d,.]+")


@dataclass(frozen=True)
class Subject:
    """What was examined, as the user would name it: a network, its checkpoint, the shape of an input, data."""

    factory: str
    checkpoint: str | None = None
    example: str | None = None
    data: str | None = None

    def options(self, *names: str) -> list[str]:
        """The options of these names that were given, as words of a command."""
        given = {"--checkpoint": self.checkpoint, "--example": self.example, "--data": self.data}
        return [word for name in names if (value := given[name]) is not None for word in (name, value)]

    def command(self, verb: str, *more: str) -> str:
        """A command on the same network."""
        options = self.options("--checkpoint", "--example", "--data")
        return shlex.join(["relucid", verb, self.factory, *options, *more])

    def convert(self, suggestion: Suggestion) -> str:
        """The command for a conversion of the same network; merge alone makes use of data.

        >>> Subject("net:build", example="1,3,8,8").convert(Suggestion("to_crelu", ("a",), "expand"))
        'relucid convert net:build --example 1,3,8,8 --to crelu --layers a -o converted-crelu'
        """
        names = ["--checkpoint", "--example", *(["--data"] if suggestion.mode == "merge" else [])]
        return suggestion.command(self.factory, *self.options(*names))


def examination_page(found: Examination, subject: Subject) -> str:
    """The page of an examination."""
    return render(
        "examination.html",
        subject=subject,
        words=words(found),
        findings=remedies(found, subject),
        grid=grid(found),
        sections=[(layer.name, *section(layer)) for layer in found.layers],
        unattributed=found.unattributed,
        command=subject.command("examine", "-o", "page.html"),
    )


def words(found: Examination) -> str:
    """What there is, in two sentences."""
    if not found.layers:
        return "No layer of this network is rectified."
    units = sum(layer.rectified.units for layer in found.layers)
    seen = [layer.activity for layer in found.layers if layer.activity is not None]
    dead, on = (
        sum(int(mask.sum()) for mask in masks)
        for masks in ([a.dead for a in seen], [a.always_on for a in seen])
    )
    pairs = [pairing for layer in found.layers for pairing in layer.pairing.values() if pairing.others]
    paired, filters = sum(int(p.paired.sum()) for p in pairs), sum(len(p.paired) for p in pairs)
    return (
        f"{len(found.layers)} rectified layers with {units:,} units: {dead:,} are dead and {on:,} always on. "
        f"Of {filters:,} filters {paired:,} have an opposite partner that chance does not explain."
    )


def remedies(found: Examination, subject: Subject) -> list[tuple[str, list[str]]]:
    """(the command, "" where there is none; the findings that it addresses), one per conversion."""
    groups: dict[str, list[str]] = {subject.convert(suggestion): [] for suggestion in found.suggestions()}
    by_name = dict(zip((s.name for s in found.suggestions()), groups, strict=True))
    for finding in found.findings:
        command = by_name[finding.suggestion.name] if finding.suggestion else ""
        groups.setdefault(command, []).append(finding.sentence)
    return list(groups.items())


def grid(found: Examination) -> Grid:
    """The table of layers, each with a link to its section."""
    rows = found.rows()
    head = [(name, "") for name in (rows[0] if rows else ())]
    lines = []
    for number, row in enumerate(rows):
        line = [Cell(text, _number(text)) for text in row.values()]
        lines.append([Cell(row["layer"], link=f"layer-{number}"), *line[1:]])
    return Grid("Rectified layers, in order of execution", head, lines)


def _number(text: str) -> float | None:
    match = NUMBER.match(text)
    return float(match[0].replace(",", "").rstrip(".")) if match else None


def section(layer: Layer) -> tuple[str, list[str], list[Figure]]:
    """What is said of a layer: a sentence, its conspicuous units, its figures."""
    r, activity = layer.rectified, layer.activity
    fed = ", ".join(" → ".join((s.name, *s.through)) for s in r.sources) or "no weight"
    sentence = f"{r.units} units, {r.kind}, fed by {fed}." + (f" {r.obstacle}." if r.obstacle else "")
    kinds = {} if activity is None else activity.kinds()
    listed = [f"{kind}: {_units(mask)}" for kind, mask in kinds.items() if bool(mask.any())]
    return sentence, listed, list(figures(layer))


def _units(mask: Tensor, most: int = 40) -> str:
    """The numbers of the units, as far as a reader wants to know them.

    >>> import torch
    >>> _units(torch.tensor([True, False, True, True]), most=2)
    'units 0, 2 and 1 more'
    """
    units = mask.nonzero().flatten().tolist()
    more = f" and {len(units) - most} more" if len(units) > most else ""
    return "units " + ", ".join(map(str, units[:most])) + more


def figures(layer: Layer) -> Iterator[Figure]:
    """The figures of a layer: filters beside their partners, pairs against random, sides, boundaries."""
    r = layer.rectified
    for source in r.sources:
        found = layer.pairing.get(source.name)
        if found is None or not found.others:
            continue
        weight = source.weight if r.scale is None else r.folded()[0]
        if weight.dim() == 4 and weight.shape[1] in (1, 3):
            plot = figure_of_pairs(weight, found)
            most = float(found.opposite.nan_to_num(1.0).min())
            alt = f"{len(weight)} filters as images, each with its most opposite one; cosines from {most:.2f} up."
            yield Figure("Filters, each with its most opposite one", alt, plot)
        yield Figure("Pairs against random filters", found.summary(), found.figure())
    if layer.activity is not None:
        yield sides(layer.activity)
    if layer.boundary is not None and bool(layer.boundary.defined.any()):
        yield boundaries(layer.boundary, layer.activity)


def sides(activity: Activity) -> Figure:
    """The share of inputs on which each unit is active, from the least to the most active unit."""
    rank = activity.active.argsort().argsort() + 1
    rest = ~(activity.dead | activity.always_on)
    plot = go.Figure(
        layout={
            "xaxis_title": "units, by activity",
            "yaxis_title": "active on % of inputs",
            "yaxis_range": [-4, 104],
        }
    )
    kinds = {"dead": activity.dead, "always on": activity.always_on, "switching": rest}
    for (kind, mask), color, symbol in zip(
        kinds.items(), (PALETTE[1], PALETTE[2], PALETTE[0]), ("x", "triangle-up", "circle"), strict=True
    ):
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
    return Figure("Dead and always-on units", activity.summary(), plot)


def boundaries(found: Boundary, activity: Activity | None) -> Figure:
    """The boundaries themselves, in one or two dimensions; in more their distances from the origin.

    Where lengths of inputs are known they are marked: a boundary farther away than all of them splits no data.
    """
    if found.direction.shape[1] <= 2:
        return Figure("Boundaries", found.summary(), found.figure())
    shell = None if activity is None else activity.shell
    plot = go.Figure(layout={"xaxis_title": "distance from the origin |λ|", "yaxis_title": "boundaries"})
    plot.add_histogram(
        x=found.radius[found.defined].abs().float().cpu().numpy(), nbinsx=60, name="boundaries"
    )
    if shell is None:
        return Figure("Distances of the boundaries", found.summary(), plot)
    said = {"annotation_text": "lengths of the inputs", "annotation_position": "inside top left"}
    plot.add_vrect(*shell, fillcolor=PALETTE[1], opacity=0.2, line_width=0, **said)
    alt = f"{found.summary()}; inputs are {shell[0]:.3g} to {shell[1]:.3g} long"
    return Figure("Boundaries against the data", alt, plot)
