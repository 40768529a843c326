"""crelu: Shang, Sohn, Almeida, Lee: Understanding and Improving CNNs via Concatenated ReLU (ICML 2016)."""

from relucid.papers.crelu import (
    fig1,
    fig2,
    fig4,
    representations,
    table1,
    table1_fitted,
    table2,
    table4,
    table5,
    table6,
    table_s1,
    theorem_c1,
)
from relucid.papers.crelu.statements import STATEMENTS
from relucid.papers.scales import described

STUDIES = described(
    *table1.STUDIES,
    *table1_fitted.STUDIES,
    *table2.STUDIES,
    *table4.STUDIES,
    *table5.STUDIES,
    *representations.STUDIES,
    *table6.STUDIES,
    *fig1.STUDIES,
    *fig2.STUDIES,
    *fig4.STUDIES,
    *table_s1.STUDIES,
    *theorem_c1.STUDIES,
)

__all__ = ["STATEMENTS", "STUDIES"]
