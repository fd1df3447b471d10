"""One run from what a person passes to a live search: options, inputs, assembly, forks, the inbox and seed pools."""
