"""The dashboard: a local server over the journals of one run or of a folder of runs.

It reads only `store.views`; messages from people go into the run's inbox (`store.inbox`), where the
process that owns the run reads them. The pages are plain functions that return JSON documents
(`extensions.web.pages`), so that a report can hold the same pages without a server.
"""
