"""OpenEvolve's evaluators with the candidate behind a proxy, in a process of its own.

    evaluator's process                                         candidate's process
      stub             the file at the program's path             candidate_process   a supervisor,
      one server per
      remote_objects   stand-ins for functions, classes, ...                          importing
      process
      session          what may cross, and in which form
                       operations  <-- connection -->  operations

`operations` is the protocol: all that either side can ask of the other, in one table. The
evaluator's process never holds text or code of the candidate. What crosses is plain data, arrays as
raw numbers, and handles on objects that stay where they are. Nothing else is accepted from the
candidate's side.
"""
