"""Coding agents of the strategy `cato`: a pure view of the team, and its effects.

team       pure: imported by the strategy, replayed from the journal, no I/O
sandbox    effects of agent sessions: work trees, queue, processes, merging
adapters   effects: start each kind of agent program and read its output
gateway    effects: between agents and their model providers; counts, limits, records
"""
