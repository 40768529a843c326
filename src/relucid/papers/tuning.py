"""Learning rates for the scale "cpu": every rate that was tried, by the error on held-out images."""

from collections.abc import Callable, Sequence
from types import MappingProxyType

from relucid.papers.cifar import REENCODED
from relucid.studies.expect import Claim
from relucid.studies.plan import merge
from relucid.studies.run import Result
from relucid.studies.study import Column, Config, Scale, Study
from relucid.studies.table import Table

CPU = "cpu"
# For the protocol of a study until its rates have been tried.
UNTUNED = (
    "They have not been tried yet: until then every network would be trained at 0.1, which answers nothing."
)
CHECK = (
    "test_each_row_has_the_rate_of_the_lowest_held_out_error_and_better_rates_were_looked_for_on_both_sides"
)


def rates_of(
    study: Study,
    rates: Sequence[float],
    held_out: Callable[[float], Config],
    seconds: float,
    smoke: Config = MappingProxyType({}),
    epochs: int | None = None,
) -> Study:
    """The study that tries every rate for the rows that `study` has at the scale "cpu".

    Its runs have the size of that scale, hold out a part of the training images, and do not see the test images.
    `study` then fixes the best rate of each row: see `chosen`.

    Args:
        study: with a scale "cpu".
        rates: in ascending order.
        held_out: what a run at this rate adds to the configuration.
        seconds: rough time per run.
        smoke: what the runs of the smoke scale need besides: more images, some of which are held out.
        epochs: fewer than the scale has, where trying every rate at full length would take too long.
    """
    scale = study.scales[CPU]
    length = "length" if epochs is None else f"schedule (in {epochs} epochs)"
    config = scale.config if epochs is None else merge(scale.config, {"recipe": {"epochs": epochs}})
    return Study(
        name=f"{study.name}-rates",
        title=f"Error on held-out images by learning rate, for {study.name}",
        run=study.run,
        rows={row: study.rows[row] for row in scale.rows or study.rows},
        columns={f"{rate:g}": Column("val_error", held_out(rate), repeat={}) for rate in rates},
        scales={
            CPU: Scale(config, seconds=seconds),
            "smoke": Scale({**study.scales["smoke"].config, **smoke}, seconds=study.scales["smoke"].seconds),
        },
        config=study.config,
        source=study.source,
        claims=(
            Claim(
                f"rates of {study.name}",
                "Every network is trained at a rate that has worse ones on either side, by held-out images.",
                note="Ours: shown, and asserted by a test.",
                code=("relucid.papers.tuning.chosen",),
                tests=("papers/test_tuning.py::" + CHECK,),
            ),
        ),
        protocol=(
            f"One run per row and rate, of the size and {length} of {study.name} at scale cpu, on nine tenths of the "
            f"training images; the error on the last tenth decides which rate {study.name} takes for the row. The test "
            f"images are not looked at. {REENCODED}"
        ),
    )


def held_out_error(history: dict[str, list[float]]) -> Result:
    """The result of a run that tries a rate: its last error on held-out images, and nothing of the test images."""
    return Result({"val_error": history["val_error"][-1]}, history)


def chosen(table: Table) -> dict[str, float]:
    """The rate of every row that has the lowest held-out error."""
    found: dict[str, tuple[float, float]] = {}
    for (row, column), cell in table.cells.items():
        if cell.mean is not None:
            found[row] = min(found.get(row, (float("inf"), 0.0)), (cell.mean, float(column)))
    return {row: rate for row, (_, rate) in found.items()}
