"""What a scale of a study changes, in words: generated from its configuration, so that the two cannot disagree."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from relucid.papers.cifar import REENCODED
from relucid.studies import Study
from relucid.studies.plan import flat, merge
from relucid.studies.study import Published

FAMILIES = {"residual", "dense"}  # of networks: a configuration has settings for either
RATES = {"lr", "rate"}


def listed(values: Iterable[object]) -> str:
    """Values in a sentence.

    >>> listed([8, 10]), listed(["flip"])
    ('8 and 10', 'flip')
    """
    *first, last = map(str, values)
    return f"{', '.join(first)} and {last}" if first else last


def _part(value: float) -> Fraction:
    return Fraction(value).limit_denominator(100)


def _steps(values: Sequence[float]) -> str:
    """When the learning rate is cut: after so many epochs, or so large a part of them."""
    if not values:
        return "a constant rate"
    return (
        f"the rate cut after {listed(map(_part, values))} {'epochs' if values[0] >= 1 else 'of the epochs'}"
    )


# By the last part of a setting's name, with the runner's name before it where a runner means something else by it; in
# the order of the sentence.
WORDS: Mapping[str, str | Callable[[Any], str]] = {
    "data": lambda name: {"cifar10": "CIFAR-10"}.get(name, name),
    "train": "{:,} training images drawn by the seed",
    "gmp/images images": lambda counts: "the first {:,} training and {:,} validation images".format(*counts),
    "images": "the first {:,} training images",
    "test": "{:,} test images",
    "pairs": "{:,} pairs",
    "features": "{} features",
    "pool": "images averaged over {0}x{0} pixels",
    "depth": "{} layers",
    "width": lambda share: f"{_part(share)} of the width",
    "growth": "growth rate {}",
    "begin": "initial weights and batch norm of the {}",
    "dropout": lambda rates: "no dropout" if rates in (0, [0, 0]) else f"dropout {rates}",
    "epochs": "{} epochs",
    "share": lambda held: f"{held} held out" if held else "trained on all images to the last epoch",
    "steps": _steps,
    "halved": "the rate halved every {} epochs",
    "dampening": "dampening {}",
    "decay": "weight decay on {}",
    "batch": "B = {}",
    "batch_size": "batches of {}",
    "augment": lambda kinds: (
        f"augmented by {listed(f'{kind}s' for kind in kinds)}" if kinds else "no augmentation"
    ),
    "merge images": "refitted on {} images",
    "crelu/convpool images": "{:,} images for invariance",
    "samples": "{} reconstructed",
    "fold": lambda folds: f"{len(folds)} of the folds",
    "folds": "{} folds",
    "seed": lambda seeds: f"{len(seeds)} seeds",
    "lr": lambda rates: f"rates {listed(rates)}",
}
# For settings that only the full scale has.
ABSENT = {"begin": "default initial weights and batch norm", "decay": "no weight decay on norms"}


def described(*studies: Study) -> tuple[Study, ...]:
    """The studies with what each scale changes against full scale in its protocol, and the copy of CIFAR-10 used."""
    return tuple(map(_described, studies))


def _described(study: Study) -> Study:
    scales = dict(study.scales)
    for name, scale in study.scales.items():
        if "full" in scales and name not in ("full", "smoke") and (found := changes(study, name)):
            sentence = f"At {name} scale, unlike full scale: {', '.join(found)}."
            scales[name] = replace(scale, protocol=f"{sentence} {scale.protocol}".rstrip())
    used = any(merge(study.config, scale.config).get("data") == "cifar10" for scale in scales.values())
    protocol = f"{study.protocol} {REENCODED if used else ''}".strip()
    return replace(study, scales=scales, protocol=protocol)


def gain(ours: Published, theirs: Published) -> float:
    """By what share a published error is below another.

    >>> round(gain(9.0, (10.0, 0.1)), 2)
    0.1
    """
    lower, higher = (value[0] if isinstance(value, tuple) else value for value in (ours, theirs))
    return 1 - lower / higher


def designed(
    pairs: int, detects: float, share: float, at: int, since: str = "any test error was seen"
) -> str:
    """What a design could detect, for the protocol of a scale that was designed before its runs.

    Args:
        pairs: of runs, one per seed.
        detects: the difference in points that they find with 80% power; a test computes it.
        share: the published difference, as a share of the error it is compared with.
        at: an expected error in per cent.
        since: before what it was designed.
    """
    return (
        f"Designed before {since}: with a deviation of 0.5 points between seeds, {pairs} pairs detect a difference of "
        f"{detects:.1f} points; the published one, {share:.1%} of the error, would be {share * at:.1f} points at {at}%."
    )


def changes(study: Study, scale: str) -> list[str]:
    """What a scale changes against full scale, one phrase per setting."""
    here, there = (_settings(study, each) for each in (scale, "full"))
    tuned_by, families = study.scales[scale].tuned_by, _families(study, scale)
    # Place in the sentence and phrase -> the families of networks that it is about.
    found: dict[tuple[int, str], set[str]] = {}
    for path in here | there:
        own = FAMILIES.intersection(path)
        if here.get(path) == there.get(path) or own - families or (tuned_by and RATES.intersection(path)):
            continue
        name = path[0] if path[0] == "decay" else path[-1]  # decay has one entry per family
        found.setdefault(_words(study.runner.name, name, here.get(path)), set()).update(own or families)
    phrases = [
        text if about == families else f"{text} ({listed(sorted(about))})"
        for (_, text), about in sorted(found.items())
    ]
    return [*phrases, f"rates by held-out images in {tuned_by}"] if tuned_by else phrases


def _words(runner: str, name: str, value: Any) -> tuple[int, str]:
    """A setting in words, and its place in the sentence; one without words is named."""
    key = f"{runner} {name}" if f"{runner} {name}" in WORDS else name
    place = list(WORDS).index(key) if key in WORDS else len(WORDS)
    if value is None:
        return place, ABSENT.get(name, f"no {name}")
    words = WORDS.get(key, f"{name} {{}}")
    return place, words.format(value) if isinstance(words, str) else words(value)


def _families(study: Study, scale: str) -> set[str]:
    """The families of networks that a scale trains."""
    return {merge(study.config, row).get("family", "") for row in study.at(scale).rows.values()}


def _settings(study: Study, scale: str) -> dict[tuple[str, ...], Any]:
    """What all runs of a scale share, by its path in the configuration, and what they are repeated over."""
    at = study.scales[scale]
    first, *rest = [flat(row) for row in (at.rows or {"": {}}).values()]
    shared = {path: value for path, value in first.items() if all(row.get(path) == value for row in rest)}
    grids = [column.repeat or {} for column in study.columns.values()]
    repeated = {
        (name,): list(values) for name, values in merge(study.repeat, study.choose, *grids, at.repeat).items()
    }
    return repeated | flat(merge(study.config, at.config)) | shared
