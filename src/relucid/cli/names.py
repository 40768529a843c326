"""The names that the command line offers, available without importing torch.

They are kept in names.json, which `python -m relucid.cli.names` writes; a test checks that it is up to date.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

TABLE = Path(__file__).with_name("names.json")


class Listed(TypedDict):
    """What `relucid list` says about a study."""

    title: str
    scales: list[str]


class Names(TypedDict):
    """All names, by kind; a data set comes with the file it needs, if any."""

    studies: dict[str, Listed]
    models: list[str]
    data: dict[str, str | None]
    conversions: list[str]
    exports: list[str]
    formats: list[str]
    backends: list[str]


@cache
def names() -> Names:
    """The names in names.json."""
    table: Names = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def current() -> Names:
    """The names as the packages define them: what names.json must hold."""
    from relucid import data, models, papers, studies
    from relucid.cli.convert import conversions
    from relucid.cli.export import EXPORTS
    from relucid.studies.executors import BACKENDS

    found = papers.built_in().values()
    return {
        "studies": {study.name: {"title": study.title, "scales": list(study.scales)} for study in found},
        "models": models.names(),
        "data": dict(data.FILES),
        "conversions": list(conversions()),
        "exports": list(EXPORTS),
        "formats": list(studies.FORMATS),
        "backends": list(BACKENDS),
    }


def written(table: Any) -> str:
    """The text of names.json."""
    return json.dumps(table, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TABLE.write_text(written(current()), encoding="utf-8")
