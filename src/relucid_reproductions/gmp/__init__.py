"""gmp: Chen, Ge: Neural Characteristic Activation Value Analysis (geometric parameterization)."""

from relucid_reproductions.gmp import fig1, fig2, fig3, rates, section4_3, spread, table1, table2, table3
from relucid_reproductions.gmp.statements import STATEMENTS

TABLES = [fig1, fig2, fig3, spread, section4_3, table1, table2, table3, rates]

__all__ = ["STATEMENTS", "TABLES"]
