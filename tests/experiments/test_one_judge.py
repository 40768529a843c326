import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "relucid"
JUDGE = "experiments/_judge.py"
# Measurements of one network, not judgements between two: the exact distribution of the most opposite of random
# filters, the interval of a unit's rate (the core has no scipy), and where a unit's values lie.
MEASUREMENTS = {"inspect/_statistics.py", "convert/_revive.py"}
CAVEATS = "experiments/_caveats.py"  # whether a rate was chosen by less than its noise
# Those that turn p-values into outcomes for the claims.
OUTCOMES = {JUDGE, CAVEATS}
STATISTICS = re.compile(
    r"scipy\.stats|scipy\.special|\b(stdtr|stdtrit|ndtr|ndtri|ttest|fisher_exact|binomtest|betainc|ppf|isf"
    r"|erfc?|quantile|percentile|NormalDist|t_test|bootstrap_|resample)\b|1\.9[56]"
)


def test_p_values_and_intervals_are_computed_in_one_place():
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if STATISTICS.search(path.read_text(encoding="utf-8"))
    }
    assert JUDGE in found
    assert found - {JUDGE, CAVEATS} <= MEASUREMENTS


def test_nothing_else_asks_whether_a_p_value_is_below_the_level():
    asking = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if "LEVEL" in path.read_text(encoding="utf-8")
    }
    assert asking == OUTCOMES


def test_the_level_of_significance_is_written_once():
    written = [
        path.relative_to(SOURCE).as_posix()
        for path in (SOURCE / room for room in ("experiments", "report", "_improve", "cli"))
        for path in path.rglob("*.py")
        if re.search(r"\bp\w* *[<>]=? *0\.\d|\b0\.05 *[<>]|[<>]=? *0\.05\b", path.read_text(encoding="utf-8"))
    ]
    assert written == []
