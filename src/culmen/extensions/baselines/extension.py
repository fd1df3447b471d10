"""The parts of `culmen.extensions.baselines`, for the registry of extensions."""

from culmen.core.extensions import Extension

EXTENSION = Extension(
    name="baselines",
    strategies={
        "openevolve": "culmen.extensions.baselines.openevolve:OpenEvolve",
        "map_elites": "culmen.extensions.baselines.map_elites:MapElites",
        "gepa": "culmen.extensions.baselines.gepa:Gepa",
        "gated": "culmen.extensions.baselines.gated:Gated",
        "puct": "culmen.extensions.baselines.puct:PuctSearch",
        "portfolio": "culmen.extensions.baselines.portfolio:Portfolio",
    },
)
