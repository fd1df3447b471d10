"""Stand-in for what ShinkaEvolve's evaluators import; other modules come from the package where it is installed."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
