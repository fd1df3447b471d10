"""Types of decoded JSON."""

from __future__ import annotations

from typing import Any

JsonObject = dict[str, Any]
"""A decoded JSON object: an entry's body, the settings of a strategy, a page's document.

Whoever reads a value checks its type, or knows it from the writer of the document.
"""
