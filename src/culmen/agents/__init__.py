"""Coding agents for the strategy `cato`: a pure view of the team, and what acts for it.

team       pure: imported by the strategy, replayed from the journal, no I/O
sandbox    acts: performs the effects of agent sessions: work trees, queue, processes, merging
adapters   acts: starts and reads each kind of agent program
gateway    acts: between agents and their model providers; counts, limits, records
"""
