"""Reports on runs, read from `store.views` alone: nothing here can touch a search."""
