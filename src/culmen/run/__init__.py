"""From user input to a live search: requests, plans, tasks, assembly, forks, seed pools."""
