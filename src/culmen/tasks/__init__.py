"""Task folders of several origins as `Task` values.

    task = load("path/to/task")        # culmen's own folder, or an unmodified OpenEvolve example
    write_new("my_task")               # three short files of a working task

Nothing here imports or runs a task's code. docs/tasks.md describes the calls of evaluators.
"""

from culmen.tasks.loading import (
    example_path,
    examples,
    load,
    with_present_files,
    with_proxy,
    write_new,
)
from culmen.tasks.surface import surface_fault

__all__ = [
    "example_path",
    "examples",
    "load",
    "surface_fault",
    "with_present_files",
    "with_proxy",
    "write_new",
]
