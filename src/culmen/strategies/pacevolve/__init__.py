"""PACEvolve and PACEvolve++: an advisor decides what to try, an implementer writes it."""
