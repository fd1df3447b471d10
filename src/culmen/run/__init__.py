"""From user input to a live search: options, inputs, assembly, forks, inbox, seed pools."""
