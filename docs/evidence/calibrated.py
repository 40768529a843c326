"""How often `improve` announces what is not there, drawn: the figure of the study calibration."""

from relucid.papers.ours import calibration
from relucid.report.figure import PALETTE
from relucid.studies import Table
from relucid.studies.compare import compare_share

ALT = "Share of runs that end in better, with its interval, by seeds and by test examples; a line at 5%"
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{alt}" width="650" viewBox="0 0 520 {height}">
<style>text {{ fill: #5a6270; font: 13px system-ui, sans-serif; }} line {{ stroke: {now}; stroke-width: 1.5; }}
.now {{ fill: {now}; }} .before {{ stroke: {before}; fill: {before}; }} .allowed {{ stroke: #8a93a0; stroke-width: 1; }}
</style>
{parts}
</svg>
"""
LEFT, PITCH = 150, 30  # where the axis begins, and from row to row


def calibrated(table: Table) -> str:
    """The share of runs that end in better with its interval as SVG, by the rule of today and by the one before."""
    rows = [("all runs", {}), *((f"{each} seeds", {"seeds": each}) for each in calibration.SEEDS)]
    rows += [(f"{each:,} test examples", {"test": each}) for each in calibration.SIZES]
    bottom = 40 + PITCH * len(rows)
    parts = [
        f'<line class="allowed" x1="{_x(calibration.ALLOWED)}" x2="{_x(calibration.ALLOWED)}" y1="26" y2="{bottom}"/>'
    ]
    parts += [f'<text x="{_x(at)}" y="20" text-anchor="middle">{at}%</text>' for at in (0, 5, 20, 40)]
    for number, (label, setting) in enumerate(rows):
        y = 50 + PITCH * number
        parts.append(f'<text x="4" y="{y + 4}">{label}</text>')
        for kind, metric, down in (("now", "better", -4), ("before", calibration.EXACT, 4)):
            found = compare_share(calibration.shares(table, metric, **setting), 0.0)
            if found is not None:
                ends = f'x1="{_x(found.low)}" x2="{_x(found.high)}" y1="{y + down}" y2="{y + down}"'
                parts.append(f'<line class="{kind}" {ends}/>')
                parts.append(f'<circle class="{kind}" cx="{_x(found.effect)}" cy="{y + down}" r="3.5"/>')
    legend = (("now", 4, "as decided now"), ("before", LEFT, "with the given network's result as exact"))
    for kind, x, text in legend:
        parts.append(f'<circle class="{kind}" cx="{x + 6}" cy="{bottom + 16}" r="3.5"/>')
        parts.append(f'<text x="{x + 16}" y="{bottom + 20}">{text}</text>')
    colours = {"now": PALETTE[2], "before": PALETTE[1]}
    return SVG.format(alt=ALT, height=bottom + 32, parts="\n".join(parts), **colours)


def _x(percent: float) -> float:
    return round(LEFT + 10 + 6.5 * percent, 1)
