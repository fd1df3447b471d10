"""Stand-in for ShinkaEvolve's modules that evaluators import, if it is not installed."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
