"""Stand-in for the modules of ShinkaEvolve that evaluators import, where it is not installed."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
