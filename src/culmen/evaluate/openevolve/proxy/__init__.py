"""Evaluators of the form legacy without candidate code in their process.

    evaluator's process                                    candidate's process (host)
      file at the program's path: `stub`                     supervisor, one server per importing process
      `faces`: functions, classes, objects, iterators  <-->  the candidate, imported there (`server`)
      `session`: the connection, and what may cross

The evaluator's process never holds text or code of the candidate. What crosses is plain data, arrays as raw numbers,
and handles on things that stay where they are. Nothing that comes from the candidate's side is trusted to be more.
"""
