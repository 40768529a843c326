"""The papers' tables and figures, and our own, as studies: a package per paper, a .py and an .md per table.

`relucid` finds these packages by the entry points "relucid.studies", and any other package that registers some.
"""
