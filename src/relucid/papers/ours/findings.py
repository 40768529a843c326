"""The four findings of the quickstart in words."""

from statistics import fmean

from relucid.papers.ours.depth import SIDES
from relucid.papers.ours.mend import CONVERTED, NEW, NEW_CRELU, RENEWED, UNCHANGED, WITHOUT
from relucid.papers.ours.plasticity import HALF, RELU
from relucid.studies import Table
from relucid.studies.ledger import entry

MENDING = (UNCHANGED, RENEWED, CONVERTED, WITHOUT, NEW, NEW_CRELU)
METHODS = {"standard": "SP", "weight norm": "WN", "batch norm": "BN", "geometric": "GmP"}
LAYERS = {f"{layers} layers": layers for layers in (10, 100, 1000)}
FIRST, LAST, DEAD, PARAMETERS = "first fifth %", "last fifth %", "dead %", "parameters"
FITTED, LEFT = "labels fitted %", "last task kept %"
TURN, ERROR = "largest turn °", "test error %"
KEPT = {side: f"MB, {side}" for side in SIDES}
STEP = {side: f"step ms, {side}" for side in SIDES}
LEARNING, MEND, BOUNDARIES, DEPTH = (
    "keeps learning",
    "mended without forgetting",
    "see what units do",
    "a thousand layers in constant memory",
)


def mean(table: Table, row: str, column: str) -> float:
    """The mean of a cell; NaN if it has not been run."""
    value = table.cells[row, column].mean
    return float("nan") if value is None else value


def learning(table: Table) -> str:
    """State how accurately ReLU and CReLU learn the first and the last tasks, and how many units are dead."""
    if not table.complete:
        return ""
    (relu,), (half,) = (table.behind(row, LAST) for row in (RELU, HALF))
    rate = half["metrics"]["rate"]
    same = fmean(relu["metrics"][f"last at {rate:g}"])
    dead = fmean(relu["metrics"][f"dead at {rate:g}"])
    stream = half["config"]["stream"]
    tried = ", ".join(f"{each:g}" for each in stream["rates"])
    return (
        f"Over {stream['tasks']} tasks, digits with their pixels permuted anew, the accuracy of CReLU with half the "
        f"units goes from {mean(table, HALF, FIRST):.0f}% to {mean(table, HALF, LAST):.0f}%, that of ReLU from "
        f"{mean(table, RELU, FIRST):.0f}% to {mean(table, RELU, LAST):.0f}%, each at the best of the rates {tried} "
        f"for it ({rate:g} and {relu['metrics']['rate']:g}). At {rate:g}, on the seeds that chose the rates, ReLU "
        f"ends at {same:.0f}%, with {dead:.0f}% of its units dead. CReLU has {mean(table, HALF, PARAMETERS):,.0f} "
        f"parameters, ReLU {mean(table, RELU, PARAMETERS):,.0f}."
    )


def mended(table: Table) -> str:
    """State what networks fit after they have been mended, and what they have kept."""
    if not table.complete:
        return ""
    (record,) = table.behind(CONVERTED, FITTED)
    fitted = {row: mean(table, row, FITTED) for row in MENDING}
    moved = max(record["metrics"]["moved"])
    unmoved = f"no output changes by more than {moved:.0e}" if moved else "no output changes at all"
    before, after = (mean(table, row, PARAMETERS) for row in (UNCHANGED, CONVERTED))
    return (
        f"After {record['config']['mend']['before']} tasks of random labels, to_crelu converts a ReLU network in the "
        f"middle of its training: {unmoved}, {before:,.0f} parameters become {after:,.0f}. In the following tasks it "
        f"fits {fitted[CONVERTED]:.0f}% of the labels ({fitted[WITHOUT]:.0f}% with a new optimizer), unchanged "
        f"{fitted[UNCHANGED]:.0f}%, with its dead units re-initialised {fitted[RENEWED]:.0f}%. New networks have "
        f"forgotten everything: they fit {fitted[NEW]:.0f}% with ReLU and {fitted[NEW_CRELU]:.0f}% with CReLU and as "
        "many parameters as the converted one."
    )


def boundaries(table: Table) -> str:
    """State the largest turn of a boundary in a step, and the test error, by parameterization."""
    if not table.complete:
        return ""
    turns = {row: mean(table, row, TURN) for row in METHODS}
    others = ", ".join(f"{turns[row]:.0f}° with {row}" for row in METHODS if row != "geometric")
    errors = ", ".join(f"{mean(table, row, ERROR):.1f}% with {row}" for row in METHODS)
    return (
        f"The largest turn of a boundary in a step is {turns['geometric']:.0f}° with geometric units, {others}, on "
        f"average. That is not the error: on test points it is {errors}."
    )


def free_depth(table: Table) -> str:
    """State the memory and the time of a thousand layers."""
    if not table.complete:
        return ""
    few, many = next(iter(LAYERS)), list(LAYERS)[-1]
    kept = {side: mean(table, many, column) for side, column in KEPT.items()}
    step = {side: mean(table, many, column) for side, column in STEP.items()}
    worst = max(value for row in LAYERS for run in table.behind(row) for value in run["metrics"]["gradients"])
    return (
        f"The backward pass through {many} needs {kept['reversible']:.2f} MB if they are reversible "
        f"({mean(table, few, KEPT['reversible']):.2f} MB for {few}), {kept['checkpointed']:.2f} MB with checkpoints, "
        f"the best alternative, and {kept['ordinary']:.1f} MB otherwise. A step takes "
        f"{step['reversible'] / step['ordinary']:.1f} times as long as an ordinary one, with checkpoints "
        f"{step['checkpointed'] / step['ordinary']:.1f} times. Gradients differ by {worst:.0e} of their length, since "
        "the ordinary stage rounds its state to float32."
    )


def findings(table: Table) -> str:
    """List the findings in Markdown, each with its claim and how the claim stands."""
    found = [entry("", table.study, claim, table) for claim in table.study.claims if claim.remark]
    return "\n".join(
        f"{number}. **{each.claim.where.capitalize()}.** {each.remark} *{each.claim.says} Here: {each.stands}.*"
        for number, each in enumerate(found, start=1)
    )
