"""A sentence about the differences between rows of a table."""

from relucid.studies.table import LEVEL, Table
from relucid.studies.words import difference


def differences(table: Table, pairs: list[tuple[str, str]], columns: list[str]) -> str:
    """By how much the first row of each pair is above the second, and how often that is more than chance."""
    listed, lower, higher, total = [], 0, 0, len(pairs) * len(columns)
    for row, other in pairs:
        found = {
            column: difference(table.cells[row, column], table.cells[other, column]) for column in columns
        }
        listed.append(
            f"{row} less {other}: " + ", ".join(f"{column} {each}" for column, each in found.items())
        )
        more = [each.mean for each in found.values() if each.chance is not None and each.chance < LEVEL]
        lower += sum(mean < 0 for mean in more)
        higher += sum(mean > 0 for mean in more)
    return (
        f"{'; '.join(listed)}. Of {total} differences {lower} are significantly below 0, {higher} above, and "
        f"{total - lower - higher} are no more than noise (Welch's test, 5%)."
    )
