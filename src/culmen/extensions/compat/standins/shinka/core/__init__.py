"""The function that evaluators import from here."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)

from culmen.extensions.compat.standins.shinka.core.wrap_eval import run_shinka_eval

__all__ = ["run_shinka_eval"]
