"""The dashboard: a server on this machine over the journals of one run or of a folder of runs.

It reads `store.views` and nothing that acts; what a person sends goes into the run's inbox
(`store.inbox`), where the process that owns the run finds it. The pages are plain functions of JSON
documents (`web.pages`), so that a report can hold the same pages without a server.
"""
