"""Numbers and outcomes that README and the pages quote, each computed from what is committed.

The number stands in the text. A comment below names the numbers before it, in their order:

    After it, the network fits 65% of the labels, left alone 18%.
    <!-- n: repair.labels.converted=65, repair.labels.unchanged=18 -->

python docs/quoted.py            # write all numbers again
python docs/quoted.py --check    # fail if one is not what the records say
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from converted import Torchvision, measured

from relucid.experiments import Record, Results, read
from relucid.experiments._catalog import find, rooms, studies
from relucid.experiments._frame import flat
from relucid.experiments._ledger import ledger
from relucid.experiments._page import Archive

DOCS = Path(__file__).parent
ROOT = DOCS.parent
MARK = re.compile(r"<!-- n: (.*?) -->", re.DOTALL)
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


class Judged(NamedTuple):
    """What records say of a claim: one of five words, the effect of its first comparison, and of what kind it is."""

    outcome: str
    effect: float
    counts: Counter[str]
    kind: str


@dataclass(frozen=True)
class Evidence:
    """Everything committed that a number can come from."""

    records: Mapping[str, Record]

    @cached_property
    def claims(self) -> dict[tuple[str, str], Judged]:
        """Every claim that was judged, by paper and by its place there."""
        archive = Archive(self.records)
        return {
            (room, entry.claim.where): Judged(
                entry.finding.outcome,
                next((each.comparison.effect for each in entry.finding.verdicts if each.comparison), 0.0),
                Counter(each.outcome for each in entry.finding.verdicts),
                entry.claim.kind,
            )
            for room in rooms()
            for entry in ledger(studies(room), archive)
            if entry.finding
        }

    @cached_property
    def benchmarks(self) -> dict[str, float]:
        """Measured ratios by benchmark and case."""
        measured = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
        return {
            f"{name}: {row['case']}, {row['measure']}": row["ratio"]
            for name, benchmark in measured.items()
            for row in benchmark["rows"]
        }

    @cached_property
    def converted(self) -> list[tuple[float, int]]:
        """For every network by others, the largest difference of an output and how many activations became CReLU."""
        rows = measured("conversions")
        found = [row["to_crelu"] for name, row in rows.items() if not name.startswith("stand-in")]
        return [(row["outputs"], row["changed"]) for row in found]

    @cached_property
    def _tables(self) -> dict[str, Results]:
        return {}

    def results(self, name: str) -> Results:
        """The results of a study."""
        if name not in self._tables:
            study = find(name)
            self._tables[name] = Results(study, study.default_scale, self.records)
        return self._tables[name]

    def of(self, runner: str, settings: Mapping[str, Any]) -> list[Record]:
        """The finished records of a runner with these settings, by dotted path."""
        return [
            record
            for record in self.records.values()
            if record["runner"] == runner
            and record["state"] == "finished"
            and settings.items() <= flat(record["config"]).items()
        ]


Quoted = Callable[[Evidence], str]


@dataclass(frozen=True)
class Mean:
    """The mean of what the runs of some settings measured, over their seeds."""

    runner: str
    metric: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    shown: str = ".0f"

    def value(self, evidence: Evidence) -> float:
        """The number itself."""
        records = evidence.of(self.runner, self.settings)
        if not records:
            raise LookupError(f"no record of {self.runner} with {dict(self.settings)}")
        measured = [record["metrics"][self.metric] for record in records]
        return fmean(
            value for values in measured for value in (values if isinstance(values, list) else [values])
        )

    def __call__(self, evidence: Evidence) -> str:
        """The number as the text has it."""
        return format(self.value(evidence), self.shown)


@dataclass(frozen=True)
class Effect:
    """The size of a claim's first comparison, without its sign, which the sentence says."""

    paper: str
    where: str
    shown: str = ".1f"

    def __call__(self, evidence: Evidence) -> str:
        """The effect as the text has it."""
        return format(abs(evidence.claims[self.paper, self.where].effect), self.shown)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a claim, in one of five words."""

    paper: str
    where: str

    def __call__(self, evidence: Evidence) -> str:
        """The word."""
        return evidence.claims[self.paper, self.where].outcome


@dataclass(frozen=True)
class Agreeing:
    """How many comparisons of a claim have an outcome, or how many there are."""

    paper: str
    where: str
    outcome: str = ""

    def __call__(self, evidence: Evidence) -> str:
        """The count."""
        counts = evidence.claims[self.paper, self.where].counts
        return str(counts[self.outcome] if self.outcome else counts.total())


@dataclass(frozen=True)
class OfCell:
    """The mean of a cell of a study's table."""

    study: str
    row: str
    column: str
    shown: str = ".0f"

    def value(self, evidence: Evidence) -> float:
        """The number itself."""
        mean: float = evidence.results(self.study)[self.row, self.column].mean()
        return mean

    def __call__(self, evidence: Evidence) -> str:
        """The mean as the text has it."""
        return format(self.value(evidence), self.shown)


@dataclass(frozen=True)
class Ratio:
    """One mean divided by another."""

    of: Mean | OfCell
    to: Mean | OfCell
    shown: str = ".1f"

    def __call__(self, evidence: Evidence) -> str:
        """The ratio as the text has it."""
        return format(self.of.value(evidence) / self.to.value(evidence), self.shown)


def _experiments(outcome: str = "") -> Quoted:
    """How many claims experiments decided, or decided in one way."""

    def count(evidence: Evidence) -> str:
        judged = [each.outcome for each in evidence.claims.values() if each.kind == "experiment"]
        return str(judged.count(outcome) if outcome else len(judged))

    return count


ARMS: dict[str, dict[str, Any]] = {  # of the plasticity study: what an arm has that plain ReLU has not
    "relu": {},
    "half": {"activation": "crelu", "units": 0.5},
    "crelu": {"activation": "crelu"},
    "redrawn": {"renew": True},
    "norm": {"norm": True},
    "leaky": {"activation": "leaky_relu"},
    "l2": {"decay": 0.001},
    "geometric": {"geometric": True},
}
OTHERS = {  # without CReLU
    "redrawn": "dead units redrawn after every task",
    "norm": "layer norm",
    "leaky": "Leaky ReLU",
    "l2": "L2",
    "geometric": "geometric weights",
}
PLAIN = {"activation": "relu", "decay": 0, "geometric": False, "norm": False, "renew": False, "units": 1}


def _plasticity(setting: str, arm: str, metric: str = "last", shown: str = ".0f") -> Mean:
    settings = {f"arm.{name}": value for name, value in {**PLAIN, **ARMS[arm]}.items()}
    return Mean("plasticity", metric, {"setting": setting, **settings}, shown)


def _best(rivals: Mapping[str, str], measured: Callable[[str], Mean | OfCell], name: bool) -> Quoted:
    """The name or the mean of the best of several rows."""

    def best(evidence: Evidence) -> str:
        key = max(rivals, key=lambda rival: measured(rival).value(evidence))
        return rivals[key] if name else measured(key)(evidence)

    return best


def _deep(column: str, shown: str = ".2f") -> OfCell:
    return OfCell("quickstart", "1000 layers", column, shown)


CLAIMS = {  # short names of claims
    "convpool.whole": ("crelu", "Table 1, CIFAR-10, whole batches"),
    "convpool.underfit": ("crelu", "Table 1, CIFAR-10"),
    "vgg": ("crelu", "Tables 2, 3, CIFAR-10"),
    "pairing": ("crelu", "Fig. 2, published weights"),
    "rates": ("gmp", "Abstract, range of learning rates"),
    "uci.published": ("gmp", "Table 3, as published"),
    "uci.heldout": ("gmp", "Table 3, held out"),
    "gmp.bn": ("gmp", "Table 2, against BN at 4B"),
    "hbnet": ("structure", "Table 4, CIFAR-10, HB-Net, n = 18"),
    "momentum": ("structure", "Table 4, momentum at equal rates"),
    "deep": ("structure", "Section 7.2"),
    "agdnet": ("structure", "Table 4, CIFAR-10, AGD-Net, L = 40"),
    "learning": ("ours", "CReLU and ReLU, digits"),
    "rivals": ("ours", "CReLU and other remedies, digits"),
    "pairs": ("ours", "CReLU and ReLU, CIFAR-10"),
    "geometric": ("ours", "geometric weights, digits"),
    "recommender.crelu": ("ours", "CReLU, rates of the first two phases"),
    "ppo": ("ours", "a new head, sensors that change"),
    "drift.crelu": ("ours", "CReLU, gradual drift"),
    "recommender.converted": ("ours", "converted at the warning, rates of the first two phases"),
    "together": ("ours", "each choice, and all three"),
    "merge": ("ours", "merging at equal parameters"),
    "boundaries": ("ours", "see what units do"),
    "constant": ("ours", "a thousand layers in constant memory"),
}
RECOMMENDER = {
    "relu": "ReLU",
    "new": "new network at every change: ReLU",
    "new_crelu": "new network at every change: CReLU",
    "wider": "ReLU, 88 units",
    "converted": "converted at the warning",
    "revived": "revived and converted at the warning",
    "norm_l2": "layer norm, L2",
    "l2init": "L2 towards the start",
    "redo": "ReDo",
    "prelu": "PReLU",
    "shrink": "shrink and perturb at every change",
    "norm": "layer norm",
    "recycled": "continual backprop",
    "crelu": "CReLU",
    "half": "CReLU, 40 units",
    "tanh": "tanh",
    "leaky": "leaky ReLU",
    "norm_crelu_l2": "layer norm, CReLU, L2",
    "slopes": "PReLU with slopes of 0 at the warning",
    "grown": "grown to 88 units at the warning",
    "injected": "plasticity injection at the warning",
}

REPAIR = {
    "unchanged": "unchanged",
    "forgotten": "new optimizer",
    "revived": "revived",
    "redo": "ReDo, every task",
    "shrink": "shrink and perturb by 0.8, every task, optimizer new",
    "l2init": "L2 towards the start, 0.005",
    "injected": "plasticity injection",
    "grown": "grown to 88 ReLU units",
    "converted": "converted",
    "both": "revived and converted",
    "new": "new network: ReLU",
    "wider": "new network: ReLU, 88 units",
    "new_crelu": "new network: CReLU",
}
REPAIR_RIVALS = {  # what else was done to the old network, by its words here
    "revived": "dead units revived",
    "redo": "ReDo",
    "shrink": "shrink and perturb",
    "l2init": "L2-init",
    "injected": "plasticity injection",
    "grown": "more ReLU units",
}
REPAIR_RATES = {
    "labels": 0.003,
    "labels.slow": 0.001,
    "labels.dead": 0.01,
    "pixels": 0.01,
    "pixels.slow": 0.003,
}


def _repaired(setting: str, way: str) -> OfCell:
    """How the tasks after a repair are learned."""
    stream = setting.partition(".")[0]
    return OfCell(f"repair-{stream}", REPAIR[way], f"afterwards %, rate {REPAIR_RATES[setting]:g}")


QUOTED: dict[str, Quoted] = {
    **{f"repair.{s}.{way}": _repaired(s, way) for s in REPAIR_RATES for way in REPAIR},
    **{
        f"repair.{s}.rival{'.name' if name else ''}": _best(REPAIR_RIVALS, partial(_repaired, s), name)
        for s in REPAIR_RATES
        for name in (False, True)
    },
    "recommender.larger": Ratio(
        OfCell("recommender", "converted at the warning", "parameters"),
        OfCell("recommender", "ReLU", "parameters"),
    ),
    **{
        f"plasticity.{setting}.{arm}": _plasticity(setting, arm)
        for setting in ("permuted", "labels", "pairs")
        for arm in ARMS
    },
    **{
        f"plasticity.{setting}.rival{'.name' if name else ''}": _best(
            OTHERS, partial(_plasticity, setting), name
        )
        for setting in ("permuted", "labels", "pairs")
        for name in (False, True)
    },
    "plasticity.permuted.relu.first": _plasticity("permuted", "relu", "first"),
    "plasticity.permuted.half.first": _plasticity("permuted", "half", "first"),
    "plasticity.parameters.relu": _plasticity("permuted", "relu", "parameters", ",.0f"),
    "plasticity.parameters.half": _plasticity("permuted", "half", "parameters", ",.0f"),
    "quickstart.turn.geometric": OfCell("quickstart", "geometric", "largest turn °"),
    "quickstart.turn.standard": OfCell("quickstart", "standard", "largest turn °"),
    "quickstart.kept.reversible": _deep("MB, reversible"),
    "quickstart.kept.ordinary": _deep("MB, ordinary", ".1f"),
    "quickstart.kept.checkpointed": _deep("MB, checkpointed"),
    "quickstart.step": Ratio(_deep("step ms, reversible"), _deep("step ms, ordinary")),
    **{f"effect.{name}": Effect(*claim) for name, claim in CLAIMS.items()},
    **{f"outcome.{name}": Outcome(*claim) for name, claim in CLAIMS.items()},
    **{f"comparisons.{name}": Agreeing(*claim) for name, claim in CLAIMS.items()},
    **{f"confirmed.{name}": Agreeing(*claim, "confirmed") for name, claim in CLAIMS.items()},
    "undetected.uci.heldout": Agreeing(*CLAIMS["uci.heldout"], "no detectable difference"),
    "ledger.experiments": _experiments(),
    **{
        f"ledger.{word.replace(' ', '_')}": _experiments(word)
        for word in ("confirmed", "reversed", "absent", "inconclusive", "no detectable difference")
    },
    "bench.geometric": lambda evidence: (
        f"{evidence.benchmarks['layers: GeometricLinear(1024, 1024) with ReLU, batch 256: training step, time']:.1f}"
    ),
    "conversions.torchvision": lambda _: Torchvision().count,
    "conversions.rows": lambda _: str(len(measured("conversions"))),
    "conversions.networks": lambda evidence: str(len(evidence.converted)),
    "conversions.converted": lambda evidence: str(sum(changed > 0 for _, changed in evidence.converted)),
    "conversions.exact": lambda evidence: str(
        sum(changed > 0 and moved == 0 for moved, changed in evidence.converted)
    ),
    "conversions.moved": lambda evidence: f"{max(moved for moved, _ in evidence.converted):.0e}",
    **{f"recommender.{name}": OfCell("recommender", row, "reward %") for name, row in RECOMMENDER.items()},
    **{
        f"recommender.stream.{name}": OfCell("recommender", RECOMMENDER[name], "all steps %")
        for name in ("tanh", "norm_l2", "converted", "crelu")
    },
    **{
        f"hindsight.{name}": OfCell("recommender-hindsight", RECOMMENDER[name], "reward %")
        for name in ("relu", "norm_l2", "converted")
    },
    **{
        f"drift.{name}": OfCell("recommender-drift", RECOMMENDER[name], "reward %")
        for name in ("relu", "l2init", "norm_l2", "redo", "prelu", "converted", "revived", "crelu")
    },
    **{
        f"ppo.{name}": OfCell("ppo", row, "return")
        for name, row in {
            "relu": "ReLU",
            "new": "new agent at every change",
            "head": "new policy head at every change",
            "warned": "new policy head at the warning",
            "crelu": "CReLU",
            "converted": "converted at the warning",
        }.items()
    },
    **{
        f"ppo.stable.{name}": OfCell("ppo-stable-baselines", row, "return")
        for name, row in {
            "relu": "ReLU",
            "crelu": "CReLU",
            "warned": "new policy head at the warning",
            "new": "new agent at every change",
        }.items()
    },
    **{
        f"games.invaders.{name}": OfCell("games", row, "space_invaders")
        for name, row in {
            "relu": "ReLU",
            "new": "new agent for every game",
            "norm": "layer norm",
            "converted": "converted at the warning",
        }.items()
    },
    "recommender.rival": lambda evidence: f"{recommended(evidence)[0]:.0f}",
    "recommender.rival.name": lambda evidence: " and ".join(recommended(evidence)[1].split(", ")),
}


def recommended(evidence: Evidence) -> tuple[float, str]:
    """The best remedy of others for the recommender: its mean and its row."""
    results = evidence.results("recommender")
    rivals = (
        *("norm_l2", "l2init", "redo", "prelu", "shrink", "recycled", "norm"),
        *("tanh", "leaky", "slopes", "grown", "injected"),
    )
    rewards = {RECOMMENDER[rival]: results[RECOMMENDER[rival], "reward %"] for rival in rivals}
    return max((float(reward.mean()), row) for row, reward in rewards.items() if len(reward))


def pages() -> list[Path]:
    """The files that quote numbers."""
    texts = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [path for path in texts if MARK.search(path.read_text(encoding="utf-8"))]


def refreshed(text: str, quote: Callable[[str], str]) -> str:
    """The text with every number that a comment names as `quote` has it.

    >>> refreshed("66%, alone 18%. <!-- n: with=66, without=18 -->", {"with": "71", "without": "18"}.__getitem__)
    '71%, alone 18%. <!-- n: with=71, without=18 -->'
    """
    done, start = [], 0
    for mark in MARK.finditer(text):
        done.append(_filled(text[start : mark.start()], mark[1], quote))
        start = mark.end()
    return "".join([*done, text[start:]])


def named(comment: str) -> list[tuple[str, str]]:
    """The keys in a comment and their values, in order."""
    pairs = (pair.strip().partition("=") for pair in re.split(r",\s+(?=[\w.]+=)", comment))
    return [(key, value) for key, _, value in pairs]


def _filled(text: str, comment: str, quote: Callable[[str], str]) -> str:
    """A stretch of text and its comment with new values."""
    done, pairs = "", []
    for key, old in named(comment):
        found = _token(old).search(_plain(text))
        if not found:
            raise ValueError(
                f"{key}: {old!r} is not in the text before its comment, or not in this order: ...{text[-80:]!r}"
            )
        new = quote(key)
        done, text = done + text[: found.start()] + new, text[found.end() :]
        pairs.append(f"{key}={new}")
    body = ", ".join(pairs)
    return f"{done}{text}<!-- n: {body} -->"


def _token(value: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.,]){re.escape(value)}(?![\w]|[.,]\d)")


def _plain(text: str) -> str:
    """The text with its code blocks blank, each character in its place."""
    return FENCE.sub(lambda block: re.sub(r"\S", " ", block[0]), text)


def main(check: bool) -> None:
    """Write the numbers of all pages, or complain about those that are old."""
    evidence, old = Evidence(read(ROOT / "results")), []
    for path in pages():
        text = path.read_text(encoding="utf-8")
        new = refreshed(text, lambda key: QUOTED[key](evidence))
        if new != text:
            old.append(path.name)
            if not check:
                path.write_text(new)
    if check and old:
        sys.exit(f"numbers are old in {', '.join(old)}: run make pages")


if __name__ == "__main__":
    main("--check" in sys.argv)
