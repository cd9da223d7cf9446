"""``cbprof record``: any program, recorded from its start without a change to it.

::

    cbprof record           the program
    launch  -- spawns -->   inject/sitecustomize -> child: waits for imports, a signal or a step, and records
       ^                              |
       `------ reads ------  status: one small file a process, in a folder made for the run
"""
