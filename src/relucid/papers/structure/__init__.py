"""structure: Li, Yang, Chen, Lin: Optimization Algorithm Inspired DNN Structure Design (2018)."""

from relucid.papers.scales import described
from relucid.papers.structure import lemma1, section5_1, section7_2, table2, table2_learned, table4, table5
from relucid.papers.structure.statements import STATEMENTS

STUDIES = described(
    lemma1.STUDY,
    section5_1.STUDY,
    table2.STUDY,
    table2_learned.STUDY,
    *table4.STUDIES,
    table5.STUDY,
    section7_2.STUDY,
)

__all__ = ["STATEMENTS", "STUDIES"]
