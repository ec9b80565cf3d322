"""The embedded Prefect server and worker that `spo up` starts.

embedded      starts and stops both; the only door of this package
record        the file that remembers what was started
processes     identity of a process across restarts and clock changes
liveness, orphans, retention, contained
              services inside the server and the worker

Flows and stages do not belong here. Start reading at `embedded.up`.
"""
