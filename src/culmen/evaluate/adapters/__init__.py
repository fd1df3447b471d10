"""Other ecosystems' task folders and evaluators as they are: what evaluations are made with; one file or folder each.

`taskfiles.loading.FolderAdapter` says what one for folders has. `openevolve`, the oldest, has the proxy that all use.
Whole searches that begin as another package's do, and so stand above `culmen.study`, are in `culmen.ecosystems`.
"""
