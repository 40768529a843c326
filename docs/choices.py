"""Draw the three choices, docs/images/three-choices.svg: units, boundaries, layers.

python docs/choices.py            # draw it
python docs/choices.py --check    # fail if the file is another drawing
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path

PICTURE = Path(__file__).parent / "images" / "three-choices.svg"
GAP, HEIGHT = 11, 292
WIDE, NARROW = 245, 224  # of the cards: heavy ball fits few networks of others, so its card is smaller
STYLE = """
.bg{fill:#fff}.card{fill:#f6f8fa;stroke:#d8dee4}.h{font-size:17px;font-weight:700;fill:#1c1e21}
.s{font-size:15px;fill:#424a53}.n{font-size:14px;fill:#57606a}
.m{font:600 14.5px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#0062b8}
.ax{stroke:#8c959f;stroke-width:1}.o{stroke:#c2410c;fill:none}.b{stroke:#0062b8;fill:none}
.g{stroke:#57606a;fill:none;stroke-width:2}.ft{fill:#c2410c}.fb{fill:#0062b8}
@media (prefers-color-scheme:dark){.bg{fill:#0d1117}.card{fill:#151b23;stroke:#2f3742}.h{fill:#e6edf3}.s{fill:#c4ccd4}
.n{fill:#9aa4af}.m,.fb{fill:#58b0ff}.b{stroke:#58b0ff}.o{stroke:#ff8f4d}.ft{fill:#ff8f4d}.g{stroke:#9aa4af}
.ax{stroke:#4b5562}}
""".strip()
SAID = (
    "What a unit passes on: ReLU drops one sign, CReLU passes on both; to_crelu. How boundaries turn: geometric "
    "weights learn the angle itself, so that a step of epsilon turns it by at most epsilon; to_geometric. How layers "
    "connect: heavy ball carries momentum from one layer to the next; to_heavy_ball."
)


def text(kind: str, x: float, y: float, words: str, anchor: str = "start") -> str:
    """A line of text."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{words}</text>'


def curve(kind: str, points: Sequence[tuple[float, float]], width: float = 3.5, dashed: bool = False) -> str:
    """A polyline."""
    dashes = ' stroke-dasharray="7 5"' if dashed else ""
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{kind}" points="{places}" stroke-width="{width:g}"{dashes}/>'


def card(left: float, width: float, title: str, picture: str, lines: Sequence[str], call: str) -> str:
    """A card: a title, a picture whose middle is (0, 0), two lines of words, and the call."""
    inner = left + 16
    shapes = [
        f'<rect class="card" x="{left:g}" y="12" width="{width:g}" height="{HEIGHT - 24:g}" rx="8"/>',
        text("h", inner, 40, title),
        f'<g transform="translate({left + width / 2:g},124)">{picture}</g>',
        *(text("s", inner, 212 + 21 * place, line) for place, line in enumerate(lines)),
        text("m", inner, 264, call),
    ]
    return "\n".join(shapes)


def both_signs(size: float = 85) -> str:
    """relu(x) and relu(-x) over x."""
    floor = 42.0
    inputs = (-size - 10, 0, size)
    return "\n".join(
        [
            f'<line class="ax" x1="{-size - 14:g}" x2="{size + 14:g}" y1="{floor:g}" y2="{floor:g}"/>',
            f'<line class="ax" x1="0" x2="0" y1="{-size + 30:g}" y2="{floor + 10:g}"/>',
            curve("o", [(x, floor - max(x, 0)) for x in inputs]),
            curve("b", [(-x, floor - max(x, 0)) for x in inputs], dashed=True),
            text("n fb", -size - 12, -size + 33, "relu(−x)"),
            text("n ft", size + 12, -size + 33, "relu(x)", "end"),
        ]
    )


def angle(radius: float = 46, theta: float = 1.92, step: float = 0.17) -> str:
    """A boundary, its normal u(theta) and the boundary after a step, inside a circle of directions."""

    def boundary(at: float, length: float) -> list[tuple[float, float]]:
        x, y = math.sin(at), math.cos(at)
        return [(-length * x, -length * y), (length * x, length * y)]

    normal = (radius * math.cos(theta), -radius * math.sin(theta))
    head = [
        (normal[0] + 11 * math.cos(theta + turn), normal[1] - 11 * math.sin(theta + turn))
        for turn in (2.6, -2.6)
    ]
    far = 1.45 * radius
    arc = [(far * math.sin(at), far * math.cos(at)) for at in (theta, theta - step)]
    return "\n".join(
        [
            f'<circle r="{radius:g}" class="g" stroke-width="1.2" opacity=".6"/>',
            curve("o", boundary(theta, 1.9 * radius)),
            curve("o", boundary(theta - step, 1.9 * radius), 1.6, dashed=True),
            curve("b", [(0, 0), normal]),
            curve("b", [head[0], normal, head[1]], 2.5),
            curve("g", arc, 1.6),
            text("n", arc[1][0] + 10, arc[1][1] + 14, "ε"),
            text("n fb", normal[0] - 8, normal[1] - 8, "u(θ)", "middle"),
        ]
    )


def momentum(box: float = 34, apart: float = 22) -> str:
    """Three layers, and the state that the third gets from the first."""
    lefts = [place * (box + apart) - (3 * box + 2 * apart) / 2 for place in range(3)]
    middles = [left + box / 2 for left in lefts]
    arrows = [
        curve("g", [(left - apart, 20), (left - 4, 20)], 2)
        + curve("g", [(left - 9, 16), (left - 4, 20), (left - 9, 24)], 2)
        for left in lefts[1:]
    ]
    return "\n".join(
        [
            *(f'<rect class="g" x="{left:g}" y="4" width="{box:g}" height="32" rx="5"/>' for left in lefts),
            *arrows,
            f'<path class="b" d="M{middles[0]:g} 4C{middles[0] + 8:g} -28 {middles[2] - 8:g} -28 {middles[2]:g} 0" '
            'stroke-width="3.5"/>',
            curve("b", [(middles[2] - 9, -8), (middles[2], 1), (middles[2] + 5, -10)], 2.5),
            text("n fb", 0, -32, "+ β (xₖ − xₖ₋₁)", "middle"),
        ]
    )


def draw() -> str:
    """All three as SVG."""
    units = ("ReLU drops one sign.", "CReLU passes on both.")
    boundaries = ("Learn the angle itself: a step", "of ε turns it by at most ε.")
    layers = ("Carry momentum from", "one layer to the next.")
    second = 12 + WIDE + GAP
    third = second + WIDE + GAP
    whole = third + NARROW + 12
    shapes = [
        card(12, WIDE, "What a unit passes on", both_signs(), units, "to_crelu(model, x)"),
        card(second, WIDE, "How boundaries turn", angle(), boundaries, "to_geometric(model, x)"),
        card(third, NARROW, "How layers connect", momentum(), layers, "to_heavy_ball(model, x)"),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole:g} {HEIGHT}" role="img" '
            'aria-labelledby="ti de" font-family="system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif">',
            '<title id="ti">Three independent choices</title>',
            f'<desc id="de">{SAID}</desc>',
            f"<style>{STYLE}</style>",
            f'<rect class="bg" width="{whole:g}" height="{HEIGHT}" rx="10"/>',
            *shapes,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    if "--check" not in sys.argv:
        PICTURE.write_text(draw())
    elif PICTURE.read_text(encoding="utf-8") != draw():
        sys.exit("docs/images/three-choices.svg is another drawing: run make pages")
