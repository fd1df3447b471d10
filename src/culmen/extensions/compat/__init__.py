"""Other ecosystems: their evaluators and task folders, unmodified, and their searches.

`openevolve`, `shinka`, `harbor`, `inspect_task` and `spoken` are evaluators; `gepa`, `dspy` and
`trace` are searches written for those packages. All evaluators use the proxy in `openevolve`.
"""
