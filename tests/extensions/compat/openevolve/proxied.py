"""Shared pieces of tests of proxied evaluators."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tests.evaluate.conftest import LIMITS, Ground

Make = Callable[..., Ground]
LOAD = """
import importlib.util, os, sys
def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""
ROOMY = msgspec.structs.replace(LIMITS, seconds=20.0, memory_mb=512, processes=48)
