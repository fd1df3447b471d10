"""Coding agents as a strategy sees them: the desk they work at, and the agents behind one protocol.

All of this is on the deterministic side: an agent learns only from the lab and its desk, and whatever touches the world
is an effect (`culmen.core.session`). A replay of the journal is the whole session again, without any agent.
"""
