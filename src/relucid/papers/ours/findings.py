"""The four findings of the quickstart in words."""

from statistics import fmean

from relucid.studies.ledger import entry
from relucid.studies.table import Table

UNCHANGED, DEAD, ANEW = "damaged, unchanged", "dead units re-initialised", "ReLU, started anew"
CRELU, MANY, HALF = "converted by to_crelu", "as many parameters, anew", "CReLU, half the filters"
MENDING = (UNCHANGED, DEAD, ANEW, CRELU, MANY)
METHODS = {"standard": "SP", "weight norm": "WN", "batch norm": "BN", "geometric": "GmP"}
LAYERS = {f"{layers} layers": layers for layers in (10, 50, 200)}
ERROR, PARAMETERS, TURN = "test error %", "parameters", "largest turn °"
KEPT = {"ordinary": "kept MB", "reversible": "kept MB, reversible"}
STEP = {"ordinary": "step ms", "reversible": "step ms, reversible"}
MEND, BOUNDARIES, DEPTH = "find and mend", "boundaries that do not jump", "depth at constant memory"


def mean(table: Table, row: str, column: str) -> float:
    """The mean of a cell; NaN if it has not been run."""
    value = table.cells[row, column].mean
    return float("nan") if value is None else value


def mended(table: Table) -> str:
    """State what was found in the damaged networks, and their errors after further training."""
    if not table.complete:
        return ""
    records = table.behind(CRELU, ERROR)
    found = [record["metrics"]["dead"] for record in records]
    moved = max(record["metrics"]["moved"] for record in records)
    pairs = zip(table.cells[CRELU, ERROR].values, table.cells[UNCHANGED, ERROR].values, strict=False)
    better = [ours < theirs for ours, theirs in pairs]
    again = zip(table.cells[MANY, ERROR].values, table.cells[CRELU, ERROR].values, strict=False)
    new = [ours < theirs for ours, theirs in again]
    return (
        f"Dead units were found in {sum(share > 0 for share in found)} of {len(found)} damaged networks, "
        f"{fmean(found):.0f}% of all units, and to_crelu was suggested for them. The conversion changed no output "
        f"by more than {moved / 1e6:.0e}. After further training the converted networks misclassify "
        f"{mean(table, CRELU, ERROR):.2f}% of the digits, unchanged ones {mean(table, UNCHANGED, ERROR):.2f}%: the "
        f"converted network is better in {sum(better)} of {len(better)} cases. It has "
        f"{mean(table, CRELU, PARAMETERS):,.0f} parameters instead of {mean(table, UNCHANGED, PARAMETERS):,.0f}; new "
        f"networks of its size, trained from scratch, misclassify {mean(table, MANY, ERROR):.2f}%, fewer in "
        f"{sum(new)} of {len(new)} cases."
    )


def half_the_parameters(table: Table) -> str:
    """State the parameters and errors of new networks with ReLU and with CReLU."""
    if not table.complete:
        return ""
    ours, theirs = mean(table, HALF, PARAMETERS), mean(table, ANEW, PARAMETERS)
    return (
        f"CReLU with half the filters has {ours:,.0f} parameters, ReLU {theirs:,.0f}; they misclassify "
        f"{mean(table, HALF, ERROR):.2f}% and {mean(table, ANEW, ERROR):.2f}% of the digits."
    )


def boundaries(table: Table) -> str:
    """State the largest turn of a boundary in a step, by parameterization."""
    if not table.complete:
        return ""
    turns = {row: mean(table, row, TURN) for row in METHODS}
    others = ", ".join(f"{turns[row]:.0f}° with {row}" for row in METHODS if row != "geometric")
    return (
        f"The largest turn in a step is {turns['geometric']:.0f}° with geometric units, {others}, on average."
    )


def free_depth(table: Table) -> str:
    """State the memory kept at the smallest and the largest depth, and the time per step."""
    if not table.complete:
        return ""
    few, many = next(iter(LAYERS)), list(LAYERS)[-1]
    kept = {side: [mean(table, row, column) for row in (few, many)] for side, column in KEPT.items()}
    slower = mean(table, many, STEP["reversible"]) / mean(table, many, STEP["ordinary"])
    runs = [run for row in LAYERS for run in table.behind(row, KEPT["ordinary"])]
    worst, channels = max(run["metrics"]["gradients"] for run in runs), runs[0]["config"]["channels"]
    return (
        f"With {few} and {many}, reversible heavy ball keeps {kept['reversible'][0]:.2f} and "
        f"{kept['reversible'][1]:.2f} MB, ordinary heavy ball {kept['ordinary'][0]:.2f} and {kept['ordinary'][1]:.2f} "
        f"MB. A step through {many} of {channels} channels takes {slower:.1f} times as long; gradients differ by "
        f"{worst:.0e} of their length, since the ordinary stage rounds its state to float32."
    )


def findings(table: Table) -> str:
    """List the findings in Markdown, each with its claim and how the claim stands."""
    found = [entry("", table.study, claim, table) for claim in table.study.claims if claim.remark]
    return "\n".join(
        f"{number}. **{each.claim.where.capitalize()}.** {each.remark} *{each.claim.says} Here: {each.stands}.*"
        for number, each in enumerate(found, start=1)
    )
