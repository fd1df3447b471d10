"""Other ecosystems' task folders and evaluators as they are, one file each.

`folders.FolderAdapter` says what one for folders has. OpenEvolve's, the oldest, is a package beside this one, with the
proxy that all of them use.
"""
