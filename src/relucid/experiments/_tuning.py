"""Learning rates for a study's rows, tried on held-out examples: the runs never see the test set."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from relucid.experiments._study import Column, Config, Scale, Study, merge

HELD_OUT = 5000  # images: a tenth of those of CIFAR


def tuning(
    study: Study,
    rates: Sequence[float],
    setting: Callable[[float], Config],
    *,
    settings: Mapping[str, Config] | None = None,
    scales: Sequence[str] = ("cpu",),
    epochs: int | None = None,
    smoke: Config | None = None,
    examples: int = HELD_OUT,
    folds: Sequence[int] = (),
) -> Study:
    """The study that tries every rate for the rows that `study` has at these scales, at their size.

    Args:
        study: the study whose rates are chosen.
        rates: in ascending order.
        setting: what a run at a rate adds to the configuration.
        settings: label -> what it adds, where a row takes a rate for each: batch sizes, say.
        scales: the scales of `study` that are tuned.
        epochs: fewer than the scale has, if trying every rate at full length would take too long.
        smoke: what the smoke scale needs besides.
        examples: how many are held out.
        folds: to hold out one after the other.
    """
    settings, repeat = settings or {"": {}}, {"fold": folds} if folds else {}
    tuned = {name: study.scales[name] for name in scales}
    needed = {row for scale in tuned.values() for row in scale.rows or study.rows}

    def without(config: Config, others: Config) -> Config:
        return {name: value for name, value in config.items() if name not in others}

    def column(label: str, added: Config, rate: float) -> Column:
        config = without({**added, **setting(rate)}, repeat)
        return Column(
            "val_error", config, repeat, tries=(label, rate), examples=examples * max(1, len(folds))
        )

    def shorter(scale: Scale) -> Scale:
        cut: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
        return Scale(
            merge(scale.config, {"recipe": cut} if "recipe" in scale.config else cut),
            rows=scale.rows and {row: {} for row in scale.rows},
        )

    labels = {
        f"{rate:g}, {label}" if label else f"{rate:g}": column(label, added, rate)
        for label, added in settings.items()
        for rate in rates
    }
    seconds = Scale({**study.scales["smoke"].config, **(smoke or {})}, {"fold": folds[:1]})
    return replace(
        study,
        name=f"{study.name}-rates",
        title=f"Error on held-out images by learning rate, for {study.name}",
        rows={row: without(added, setting(rates[0])) for row, added in study.rows.items() if row in needed},
        columns=labels,
        scales={**{name: shorter(scale) for name, scale in tuned.items()}, "smoke": seconds},
        repeat={"seed": range(3)},
        choose={},
        published={},
        splits=(),
        tries=(),
        paper={},
        tuning={},
        claims=[],
        figures=[],
        page=None,
    )
