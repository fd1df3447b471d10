"""The command line: `main` names every verb; each help panel has a file with its verbs."""
