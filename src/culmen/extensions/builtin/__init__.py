"""Built-in tasks, each a folder that a user could have written."""
