"""Task folders and evaluators of other ecosystems, unmodified; one file or folder each.

`taskfiles.loading.FolderAdapter` says what one for folders has. `openevolve`, the oldest, has the
proxy that all use. Whole searches that begin as another package's do, and so stand above
`culmen.study`, are in `culmen.ecosystems`.
"""
