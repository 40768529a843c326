import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "relucid"
JUDGE = "studies/compare.py"
# The exact distribution of the most opposite of random filters is a measurement of a network, not a judgement.
MEASUREMENT = "inspect/null_distribution.py"
STATISTICS = re.compile(
    r"scipy\.stats|scipy\.special|\b(stdtr|stdtrit|ndtr|ndtri|ttest|fisher_exact|binomtest|betainc|ppf|isf"
    r"|erfc?|quantile|percentile|NormalDist|t_test|bootstrap_|resample)\b|1\.96"
)


def test_p_values_and_intervals_are_computed_in_one_place():
    found = {
        str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if STATISTICS.search(path.read_text())
    }
    assert JUDGE in found
    assert found - {JUDGE, MEASUREMENT} == set()


def test_the_level_of_significance_is_written_once():
    written = [
        path.relative_to(SOURCE).as_posix()
        for path in (SOURCE / room for room in ("studies", "report", "papers"))
        for path in path.rglob("*.py")
        if re.search(r"\bp\w* *[<>]=? *0\.\d|\b0\.05 *[<>]|[<>]=? *0\.05\b", path.read_text())
    ]
    assert written == []
