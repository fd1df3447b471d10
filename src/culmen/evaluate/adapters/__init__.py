"""Task folders and evaluators of other ecosystems, unmodified; one file or folder each.

`taskfiles.loading.FolderAdapter` is the protocol of an adapter for folders. `openevolve`, the
oldest adapter, has the proxy that all of them use. Whole searches in the form of another package,
which are above `culmen.study`, are in `culmen.ecosystems`.
"""
