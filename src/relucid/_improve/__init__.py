"""Improvement of a network by conversion and further training, beside fair controls: `relucid.improve`."""

from relucid._improve._improvement import DEAD, GIVEN, SCRATCH, TRAINED, Improvement
from relucid._improve._project import Project, improve, project
from relucid._improve._task import RECIPE, Task, task

__all__ = [
    "DEAD",
    "GIVEN",
    "RECIPE",
    "SCRATCH",
    "TRAINED",
    "Improvement",
    "Project",
    "Task",
    "improve",
    "project",
    "task",
]
