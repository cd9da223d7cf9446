"""How a fleet of traces is read where it lies: files anywhere, on the processes of one machine or of many.

::

    paths -> files -> one task a file -> a few kilobytes a rank -> one report
             (fsspec)  (dask)            (analysis.ranks)          (analysis.ranks, render)

The ranks of a folder take the same way without Dask and fsspec: ``cbprof report FOLDER`` runs :func:`~run.run_local`.
"""
