"""Server of the Model Context Protocol: verbs of the command line as tools of agents."""
