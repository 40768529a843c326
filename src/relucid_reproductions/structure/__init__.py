"""structure: Li, Yang, Chen, Lin: Optimization Algorithm Inspired DNN Structure Design (2018)."""

from relucid_reproductions.structure import (
    lemma1,
    section5_1,
    section7_2,
    table2,
    table2_learned,
    table4,
    table5,
)
from relucid_reproductions.structure.statements import STATEMENTS

TABLES = [lemma1, section5_1, table2, table2_learned, table4, table5, section7_2]

__all__ = ["STATEMENTS", "TABLES"]
