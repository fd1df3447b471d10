"""OpenEvolve's evaluators without candidate code in their process: its objects are called in a process of their own.

    evaluator's process                                         candidate's process
      stub             the file at the program's path             candidate_process   a supervisor, one server per
      remote_objects   stand-ins for functions, classes, ...                          importing process
      session          what may cross, and in which form
                       operations  <-- connection -->  operations

`operations` is the protocol: all that either side can ask of the other, in one table. The evaluator's process never
holds text or code of the candidate. What crosses is plain data, arrays as raw numbers, and handles on things that stay
where they are. Nothing that comes from the candidate's side is trusted to be more.
"""
