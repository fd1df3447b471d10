"""Coding agents, all that the strategy `cato` needs: what it sees (team), and what acts for it (the other three).

team       pure: imported by the strategy, replayed from the journal, no I/O
sandbox    acts: performs the effects of agent sessions - work trees, queue, confined processes, merging
adapters   acts: starts and reads each kind of agent program
gateway    acts: between agents and their model providers; counts, limits, records
"""
