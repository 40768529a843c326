"""Draw the figure of README and of the home page, docs/images/headline.svg, from records, and describe it there.

python docs/headline.py            # draw it
python docs/headline.py --check    # fail if it is not what the records say
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from quoted import ROOT, Evidence, recommended

from relucid.experiments import Results, read
from relucid.experiments._catalog import built_in

PICTURE = ROOT / "docs" / "images" / "headline.svg"
WIDTH, HEIGHT = 760, 454
LEFT, RIGHT, TOP, BOTTOM = 58, 492, 122, 384
APART = 25  # pixels between labels
PAGES = {
    ROOT / "README.md": "docs/images/",
    ROOT / "docs" / "index.md": "images/",
}  # where they see the figure
# The words of rows that have others in the study: long and short.
RIVALS = {"layer norm, L2": ("layer norm and L2", "norm, L2"), "tanh": ("tanh from the start", "tanh")}
SHOWN = re.compile(r"^!\[[^\]]*\]\((?:docs/)?images/headline\.svg\)$", re.MULTILINE)
# A picture that is shown narrow, as on a phone, has larger letters and fewer words.
STYLE = """
.short{display:none}
.bg{fill:#fff}.t{font-size:21px;font-weight:700;fill:#1c1e21}.s{font-size:15px;fill:#57606a}.a{font-size:14px;fill:#57606a}
.l{font-size:16px;font-weight:600}.g{stroke:#d8dee4}.m{stroke:#57606a;stroke-dasharray:5 4;stroke-width:1.5}
.converted .m{stroke:var(--k)}.c{font:600 15px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.h{paint-order:stroke;stroke:#fff;stroke-width:5px;stroke-linejoin:round}
.crelu{--k:#007a5a}.converted{--k:#0062b8}.rival{--k:#8a4bb3}.new{--k:#6b7280}.relu{--k:#c2410c}
polyline{fill:none;stroke:var(--k);stroke-width:3;stroke-linejoin:round}.f{fill:var(--k)}.bold{stroke-width:5}
@media (prefers-color-scheme:dark){.bg{fill:#0d1117}.t{fill:#e6edf3}.s,.a{fill:#9aa4af}.g{stroke:#262c36}
.m{stroke:#9aa4af}.h{stroke:#0d1117}.crelu{--k:#3fd0a0}.converted{--k:#58b0ff}.rival{--k:#cf9bec}.new{--k:#a3abb5}.relu{--k:#ff8f4d}}
@media (max-width:500px){.long{display:none}.short{display:inline}.t{font-size:31px}.s{font-size:26px}.a{font-size:20px}
.l{font-size:26px}.c{display:none}polyline{stroke-width:4.5}.bold{stroke-width:8}}
""".strip()


@dataclass(frozen=True)
class Curve:
    """A line of the figure.

    Args:
        kind: its color: crelu, converted, rival, new or relu.
        label: what it is.
        short: the same in a word or two.
        values: percent, by step.
        start: the step of the first value.
    """

    kind: str
    label: str
    short: str
    values: Sequence[float]
    start: int = 1


@dataclass(frozen=True)
class Headline:
    """What the figure shows: curves over steps, one of them of a network that is converted after a step.

    Args:
        title: in bold, above; and a shorter one.
        subtitle: what is measured; and shorter.
        note: where and how, below.
        step: the name of a step.
        curves: the converted network first, from the step at which it is converted.
        chance: percent.
    """

    title: tuple[str, str]
    subtitle: tuple[str, str]
    note: str
    step: str
    curves: Sequence[Curve]
    chance: float


def headline(evidence: Evidence) -> Headline:
    """Share of recommendations that users like, phase by phase."""
    study = built_in()["recommender"]
    results = Results(study, study.default_scale, evidence.records)
    reward = next(iter(study.columns))

    def history(row: str) -> list[float]:
        (record,) = results.behind(row, reward)
        return [float(share) for share in record["history"]["reward"]]

    converted = "converted at the warning"
    (record,) = results.behind(converted, reward)
    world = record["config"]["world"]
    repaired = results[converted, "repaired after phase"]
    first, last = (
        round(phase) for phase in (repaired.min(), repaired.max())
    )  # each is warned in its own time
    _, rival = recommended(evidence)
    return Headline(
        title=("A recommender whose users change their tastes", "Users change their tastes"),
        subtitle=(
            "Recommendations that users like. All tastes change between phases.",
            "Recommendations liked, by phase",
        ),
        note=f"{world['users']} simulated users, 10 items. Mean of {len(record['config']['seeds'])} seeds; "
        f"converted when warned, after phase {first} or {last}.",
        step="phase",
        curves=[
            Curve("converted", "ReLU + to_crelu", "to_crelu", history(converted)[first - 1 :], first),
            Curve("relu", "ReLU, left alone", "left alone", history("ReLU")),
            Curve("new", "a new network each time", "new", history("new network at every change: ReLU")),
            Curve("rival", *RIVALS.get(rival, (rival, rival)), history(rival)),
            Curve("crelu", "CReLU from the start", "CReLU", history("CReLU")),
        ],
        chance=10,
    )


def described(figure: Headline) -> str:
    """The figure in words, for those who cannot see it."""
    last = max(curve.start + len(curve.values) - 1 for curve in figure.curves)
    said = "; ".join(
        f"{curve.label} {curve.values[0]:.0f}% in {figure.step} {curve.start}, {curve.values[-1]:.0f}% in {last}"
        for curve in figure.curves
    )
    return f"{figure.title[0]}. {figure.subtitle[0]} {said}. Chance is {figure.chance:g}%."


def shown(text: str, figure: Headline, folder: str) -> str:
    """A page with the figure's description as its alternative text."""
    return SHOWN.sub(lambda _: f"![{described(figure)}]({folder}headline.svg)", text)


def draw(figure: Headline) -> str:
    """The figure as SVG, legible on light and on dark pages."""
    last = max(curve.start + len(curve.values) - 1 for curve in figure.curves)
    highest = 100 if max(max(curve.values) for curve in figure.curves) > 85 else 90

    def x(step: float) -> float:
        return LEFT + (step - 1) * (RIGHT - LEFT) / (last - 1)

    def y(share: float) -> float:
        return BOTTOM - share * (BOTTOM - TOP) / highest

    def line(curve: Curve, width: str = "") -> str:
        points = " ".join(
            f"{x(curve.start + place):.1f},{y(value):.1f}" for place, value in enumerate(curve.values)
        )
        return f'<polyline class="{curve.kind}{width}" points="{points}"/>'

    converted, *others = figure.curves
    shapes = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="ti de" '
        'font-family="system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif">',
        f'<title id="ti">{escape(figure.title[0])}</title>',
        f'<desc id="de">{escape(described(figure))}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="bg" width="{WIDTH}" height="{HEIGHT}" rx="10"/>',
        f'<text class="t" x="20" y="36">{_two(*figure.title)}</text>',
        f'<text class="s" x="20" y="62">{_two(*figure.subtitle)}</text>',
    ]
    for share in range(0, highest + 1, 20):
        shapes += [
            f'<line class="g" x1="{LEFT}" x2="{RIGHT}" y1="{y(share):.1f}" y2="{y(share):.1f}"/>',
            f'<text class="a" x="{LEFT - 8}" y="{y(share) + 5:.1f}" text-anchor="end">{share}%</text>',
        ]
    low = y(figure.chance)
    shapes += [
        f'<line class="m" x1="{LEFT}" x2="{RIGHT}" y1="{low:.1f}" y2="{low:.1f}" opacity=".6"/>',
        f'<text class="a h" x="{LEFT + 6}" y="{low - 6:.1f}">chance</text>',
    ]
    every = 1 if last <= 12 else 5
    shapes += [
        f'<text class="a" x="{x(step):.1f}" y="{BOTTOM + 22}" text-anchor="middle">{step}</text>'
        for step in range(1, last + 1)
        if every == 1 or step == 1 or step % every == 0
    ]
    shapes.append(f'<text class="a" x="{RIGHT + 22}" y="{BOTTOM + 22}">{figure.step}</text>')
    shapes += [line(curve) for curve in others] + [line(converted, " bold")]
    px, py = x(converted.start), y(converted.values[0])
    # The words stand left of the mark, where they cross no curve, if it is in the right half.
    side, anchor = (-9, "end") if px > (LEFT + RIGHT) / 2 else (9, "start")
    said = _two("one line of code, no output changes", "no output changes")
    shapes += [
        f'<g class="converted"><circle class="f" cx="{px:.1f}" cy="{py:.1f}" r="6.5"/>',
        f'<line class="m f" x1="{px:.1f}" x2="{px:.1f}" y1="{TOP - 40}" y2="{py - 8:.1f}"/>',
        f'<g text-anchor="{anchor}">',
        f'<text class="l f" x="{px + side:.1f}" y="{TOP - 26}">{said}</text>',
        f'<text class="c f" x="{px + side:.1f}" y="{TOP - 6}">to_crelu(model, …)</text></g></g>',
    ]
    for curve, height in zip(
        figure.curves, apart([y(curve.values[-1]) for curve in figure.curves]), strict=True
    ):
        weight = 700 if curve is converted else 500
        shapes.append(
            f'<g class="{curve.kind}"><text class="l f" x="{RIGHT + 12}" y="{height + 5:.1f}">{curve.values[-1]:.0f}%'
            f'<tspan dx="7" font-weight="{weight}">{_two(curve.label, curve.short)}</tspan></text></g>'
        )
    shapes.append(
        f'<text class="a" x="20" y="{BOTTOM + 50}"><tspan class="long">{escape(figure.note)}</tspan></text>'
    )
    return "\n".join([*shapes, "</svg>"]) + "\n"


def _two(long: str, short: str) -> str:
    """A text for wide pictures, and one for narrow ones."""
    return f'<tspan class="long">{escape(long)}</tspan><tspan class="short">{escape(short)}</tspan>'


def apart(heights: Sequence[float], distance: float = APART) -> list[float]:
    """The heights of labels, moved as little as needed so that none covers another.

    >>> apart([100.0, 105.0, 300.0])
    [90.0, 115.0, 300.0]
    """
    order = sorted(range(len(heights)), key=heights.__getitem__)
    groups: list[list[int]] = []
    for place in order:
        groups.append([place])
        while len(groups) > 1 and _top(groups[-1], heights, distance) < (
            _top(groups[-2], heights, distance) + len(groups[-2]) * distance
        ):
            groups[-2:] = [groups[-2] + groups[-1]]
    moved = [0.0] * len(heights)
    for group in groups:
        for rank, place in enumerate(group):
            moved[place] = _top(group, heights, distance) + rank * distance
    return moved


def _top(group: Sequence[int], heights: Sequence[float], distance: float) -> float:
    middle = sum(heights[place] for place in group) / len(group)
    return middle - (len(group) - 1) * distance / 2


def main(check: bool) -> None:
    """Draw the figure and describe it on its pages, or complain if one is old."""
    evidence = Evidence(read(ROOT / "results"))
    figure = headline(evidence)
    files = {PICTURE: draw(figure)} | {
        page: shown(page.read_text(encoding="utf-8"), figure, folder) for page, folder in PAGES.items()
    }
    old = [
        path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if check and old:
        sys.exit(f"{', '.join(path.name for path in old)}: older than the records; run make pages")
    for path in old:
        path.write_text(files[path])


if __name__ == "__main__":
    main("--check" in sys.argv)
