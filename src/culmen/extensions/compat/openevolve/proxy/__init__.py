"""OpenEvolve's evaluators with the candidate behind a proxy, in a process of its own.

    evaluator's process                             candidate's process
      stub            the file at the program's      candidate_process   a supervisor, and one
                      path                                               server per importing
      remote_objects  stand-ins for functions,                           process
                      classes, ...
      session         allowed crossings and their
                      form
                      operations  <-- connection -->  operations

`operations` is the protocol: all requests of either side, in one table. The evaluator's process
never holds text or code of the candidate. Plain data, arrays as raw numbers, and handles on objects
that stay in their process are the only values that cross. Nothing else is accepted from the
candidate's side.
"""
