"""Task folders of several origins as `Task` values.

    task = load("path/to/task")        # culmen's own folder, or an unmodified OpenEvolve example
    write_new("my_task")               # three short files of a working task

Nothing here imports or runs a task's code. docs/tasks.md describes the calls of evaluators.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


def __getattr__(name: str) -> object:
    """A function at its first use: a search that has no task folder needs none of them."""
    if name not in __all__:
        raise AttributeError(name)
    home = "surface" if name == "surface_fault" else "loading"
    return getattr(import_module(f"{__name__}.{home}"), name)
