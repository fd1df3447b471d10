"""Evaluators and programs of other Python packages as they are, in this process: GEPA, DSPy, Trace; one file each.

Each brings its candidates' parts and a `judging.Asked`; `culmen.optimize` does the rest.
"""
