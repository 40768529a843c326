"""crelu: Shang, Sohn, Almeida, Lee: Understanding and Improving CNNs via Concatenated ReLU (ICML 2016)."""

from types import ModuleType

from relucid_reproductions.crelu import (
    fig1,
    fig2,
    fig4,
    table1,
    table1_fitted,
    table2,
    table4,
    table5,
    table6,
    table_s1,
    theorem_c1,
)
from relucid_reproductions.crelu.statements import STATEMENTS

TABLES: list[ModuleType] = [
    table1, table1_fitted, table2, table4, table5, fig2, fig1, fig4, table6, table_s1, theorem_c1,
]  # fmt: skip

__all__ = ["STATEMENTS", "TABLES"]
