"""The agents as the strategy sees them: values and effects, no files, processes or network.

An agent learns only from the lab and its workspace; whatever touches the world is an effect
(`culmen.core.session`). So a replay of the journal is the whole session again, without any agent.
"""
