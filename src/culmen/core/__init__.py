"""Values and protocols that everything else shares: no I/O, no clock, no randomness."""

VERSION = "0.1.0"
