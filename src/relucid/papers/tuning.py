"""Learning rates for the scale "cpu": every rate that was tried, by the error on held-out images."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from relucid.studies import Claim, Column, Result, Scale, Study, Table
from relucid.studies.plan import merge
from relucid.studies.study import Config

CPU = "cpu"
HELD_OUT = 5000  # images: a tenth of those of CIFAR
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
    settings: Mapping[str, Config] = MappingProxyType({"": {}}),
    also: Sequence[str] = (),
    images: int = HELD_OUT,
    folds: Sequence[int] = (),
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
        settings: label -> what it adds to a run's configuration, where a row takes a rate for each: batch sizes, say.
        also: more scales of `study` whose rows take rates of their own.
        images: how many are held out.
        folds: to hold out one after the other, with initial weights of their own; the one of `held_out` by default.
    """
    tuned = {name: scale for name, scale in study.scales.items() if name in (CPU, *also)}
    needed = {row for scale in tuned.values() for row in scale.rows or study.rows}
    repeat, runs = {"fold": folds} if folds else {}, len(folds) or 1

    def column(setting: str, added: Config, rate: float) -> Column:
        config = _without({**added, **held_out(rate)}, repeat)
        return Column("val_error", config, repeat, tries=(setting, rate), examples=images * runs)

    return Study(
        name=f"{study.name}-rates",
        title=f"Error on held-out images by learning rate, for {study.name}",
        run=study.run,
        rows={row: _without(added, held_out(rates[0])) for row, added in study.rows.items() if row in needed},
        columns={
            _label(rate, setting): column(setting, added, rate)
            for setting, added in settings.items()
            for rate in rates
        },
        scales={
            **{name: _tried(scale, epochs, seconds) for name, scale in tuned.items()},
            "smoke": Scale(
                {**study.scales["smoke"].config, **smoke},
                {"fold": folds[:1]},
                seconds=study.scales["smoke"].seconds,
            ),
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
            f"{'One run' if runs == 1 else f'{runs} runs'} per row and rate"
            f"{'' if len(settings) == 1 else ', in every setting'}, of the size and "
            f"{'length' if epochs is None else f'schedule (in {epochs} epochs)'} of {study.name} at scale "
            f"{' or '.join(tuned)}. The error on {images:,} held-out training images chooses "
            "the rate of a row; the test images are not looked at."
        ),
    )


def held_out_error(history: dict[str, list[float]]) -> Result:
    """The result of a run that tries a rate: its last error on held-out images, and nothing of the test images."""
    return Result({"val_error": history["val_error"][-1]}, history)


def chosen(table: Table) -> dict[tuple[str, str], float]:
    """The rate of every row and setting that has the lowest held-out error."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for (row, column), cell in table.cells.items():
        if cell.mean is not None:
            setting, rate = table.study.columns[column].tries or ("", math.nan)
            found[row, setting] = min(found.get((row, setting), (float("inf"), 0.0)), (cell.mean, rate))
    return {place: rate for place, (_, rate) in found.items()}


def _tried(scale: Scale, epochs: int | None, seconds: float) -> Scale:
    """The scale at which rates are tried: its rows without their rates, for other epochs if they are given."""
    shorter = {} if epochs is None else {"epochs": epochs}
    config = merge(scale.config, {"recipe": shorter} if "recipe" in scale.config else shorter)
    return Scale(config, seconds=seconds, rows=scale.rows and {row: {} for row in scale.rows})


def _without(config: Config, others: Config) -> Config:
    """What a row or column adds, except what others set: a rate of a row's own would win over every column's."""
    return {name: value for name, value in config.items() if name not in others}


def _label(rate: float, setting: str) -> str:
    return f"{rate:g}, {setting}" if setting else f"{rate:g}"
