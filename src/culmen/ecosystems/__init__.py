"""Searches that begin as in another Python package, in this process: GEPA, DSPy, Trace; one file each.

Each brings its candidates' parts and a `judging.Asked`; `culmen.optimize` does the rest. Task folders and evaluators of
other ecosystems are in `culmen.evaluate.adapters`.
"""
