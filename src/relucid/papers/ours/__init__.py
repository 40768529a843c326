"""Our own studies: questions that no paper has asked."""

from relucid.papers.ours import calibration, mend, merge, plasticity, quickstart, together
from relucid.papers.scales import described
from relucid.studies.expect import Claim

STUDIES = described(
    *quickstart.STUDIES,
    *plasticity.STUDIES,
    *mend.STUDIES,
    *together.STUDIES,
    *merge.STUDIES,
    *calibration.STUDIES,
)
STATEMENTS: tuple[Claim, ...] = ()

__all__ = ["STATEMENTS", "STUDIES"]
