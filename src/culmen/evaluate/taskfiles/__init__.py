"""Task folders of several origins as `Task` values.

    task = load("path/to/task")        # culmen's own folder, or an OpenEvolve example as it is
    write_new("my_task")               # three short files that work at once

Nothing here imports or runs anything of a task. How evaluators are called is in docs/tasks.md.
"""

from culmen.evaluate.taskfiles.loading import (
    as_it_is,
    example_path,
    examples,
    load,
    with_proxy,
    write_new,
)
from culmen.evaluate.taskfiles.surface import surface_fault

__all__ = [
    "as_it_is",
    "example_path",
    "examples",
    "load",
    "surface_fault",
    "with_proxy",
    "write_new",
]
