"""Task folders of several origins as `Task` values.

    task = load("path/to/task")        # culmen's own folder, or an unmodified OpenEvolve example
    write_new("my_task")               # three short files of a working task

Nothing here imports or runs a task's code. docs/tasks.md describes the calls of evaluators.
"""

from typing import TYPE_CHECKING

from culmen.tasks.surface import surface_fault

if TYPE_CHECKING:
    from culmen.tasks.loading import (
        example_path,
        examples,
        load,
        with_present_files,
        with_proxy,
        write_new,
    )

__all__ = [
    "example_path",
    "examples",
    "load",
    "surface_fault",
    "with_present_files",
    "with_proxy",
    "write_new",
]


def __getattr__(name: str) -> object:
    if name not in __all__:  # runs of a program without a folder do not read folders
        raise AttributeError(name)
    from culmen.tasks import loading

    return getattr(loading, name)
