"""The studies of the present code in the new form, mechanically: the engine changes first, then room by room."""

import re

import quantities as q

from relucid.experiments import Cell, Claim, Column, Contrast, Runner, Scale, Study
from relucid.experiments._catalog import built_in as ported
from relucid.papers import built_in
from relucid.papers.ours.plasticity import WHAT
from relucid.papers.ours.together import PAIRS, SINGLE
from relucid.studies.expect import Place


def adapted(old, tuned=True):
    """A study in the new form."""
    columns = {
        label: Column(
            c.metric,
            c.config,
            c.repeat,
            c.best,
            c.digits,
            c.perfect,
            c.summary == "share",
            c.tries,
            c.examples or 0,
            c.summary == "vote",
        )
        for label, c in old.columns.items()
    }
    claims = [
        Claim(
            c.where,
            c.says,
            [
                Contrast(side(e.a, old), side(e.b, old), e.relation, e.margin, e.paired)
                for e in c.comparisons()
            ],
            c.kind,
            c.stated,
            c.scales,
        )
        for c in old.claims
    ]
    return Study(
        old.name, old.title, Runner(old.runner.name, old.runner.function, old.runner.version), old.rows, columns,
        {name: Scale(s.config, s.repeat, s.rows, s.columns) for name, s in old.scales.items()},
        old.config, old.repeat, old.choose, old.by, old.paired,
        {(row, column): value for row, values in old.published.items() for column, value in values.items()},
        tuple(old.splits), old.tries, old.paper,
        {name: adapted(built_in()[s.tuned_by], False) for name, s in old.scales.items() if s.tuned_by and tuned},
        claims,
    )  # fmt: skip


def side(old, study):
    """A side of a comparison: a cell, a number, or the new form of a derived quantity, by its label."""
    return (
        Cell(*old)
        if isinstance(old, Place)
        else old
        if isinstance(old, float)
        else quantity(old.label, study)
    )


def quantity(label, study):
    """The quantity with this label."""
    problems = list(dict.fromkeys(row.rpartition(" ")[0] for row in study.rows))
    least = 8 if study.name == "crelu/convpool-whole" else 0

    def of_setting(what):
        return next(name for name, c in study.columns.items() if WHAT[c.config["setting"]] == what)

    forms = {
        r"(.*), test error minus training error": q.gap,
        r"(.*), test error if the baseline is fitted": q.if_fitted,
        r"(.*), test error if both are fitted": lambda row: q.if_fitted(row, (q.BASELINE, q.HALF)),
        r"(.*), test error where both fit": lambda row: q.where_both_fit(row, least),
        r".*, 10,240 less 2,560 images": lambda: q.lag(2560, 10240),
        r"(.*), (conv\d): same minus different units": q.phases,
        r"Baseline, mean cosine in (.*)": q.cosine,
        r"GmP\+IMN minus (.*), mean top-5 accuracy over equal epochs": q.faster,
        r"GmP\+IMN minus (.*), (top-1, batch .*)": q.lead,
        r"(.*), top-5 accuracy gained after epoch 25": q.late,
        r"(.*), cost of bad scale, (.*)": q.cost,
        r"log of the range of good rates, GmP less (.*)": lambda other: q.wider(other, problems),
        r"(.*): power of kappa": q.slope,
        r".*share of runs that do not diverge": lambda: q.reaching_the_end(
            "HB-Net (16), rate 0.3", "ResNet without ReLU after the sum, rate 0.3"
        ),
        r"ends in better, % minus 5": lambda: q.announced(study.rows, study.columns),
        r"sum of single gains less joint gain": lambda: q.shortfall(list(SINGLE)),
        r"(.*): sum of gains less joint gain": lambda pair: q.interaction(pair, PAIRS, list(SINGLE)),
        r"(.*): first fifth less last fifth, ReLU at 0.01": lambda what: q.lost(of_setting(what), what),
    }
    return next(
        form(*match.groups()) for pattern, form in forms.items() if (match := re.fullmatch(pattern, label))
    )


def every():
    """All studies in the new form; those of a room that has been ported are its own."""
    return list({**{study.name: adapted(study) for study in built_in().values()}, **ported()}.values())
