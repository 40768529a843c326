"""gmp: Chen, Ge: Neural Characteristic Activation Value Analysis (geometric parameterization)."""

from relucid.papers.gmp import fig1, fig2, fig3, rates, section4_3, table1, table2, table3
from relucid.papers.gmp.statements import STATEMENTS
from relucid.papers.scales import described

STUDIES = described(
    fig1.STUDY,
    *fig2.STUDIES,
    *fig3.STUDIES,
    section4_3.STUDY,
    *table1.STUDIES,
    *table2.STUDIES,
    *table3.STUDIES,
    rates.STUDY,
)

__all__ = ["STATEMENTS", "STUDIES"]
