"""PACEvolve and PACEvolve++: an advisor decides on experiments, an implementer writes."""
