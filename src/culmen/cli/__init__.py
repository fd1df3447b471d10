"""The command line: main names every verb, and the file of a help panel has its verbs."""
