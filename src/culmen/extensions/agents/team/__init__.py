"""The agents as the strategy sees them: values and effects without I/O.

An agent's only sources are the lab and its workspace; every access to files, processes or the
network is an effect (`culmen.extensions.agents.messages`). A replay of the journal therefore
repeats a whole session without agents.
"""
