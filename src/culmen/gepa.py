"""Another name of `culmen.extensions.compat.gepa`, for imports of its names."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from culmen.extensions.compat.gepa import *  # noqa: F403

sys.modules[__name__] = import_module("culmen.extensions.compat.gepa")
