"""Python imports this by itself when it starts: ``cbprof record`` has put this folder into PYTHONPATH."""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _begin() -> None:
    try:
        from cbprof.record.program.child import begin
    except ImportError:  # another Python than the one that runs cbprof record
        _say_that_cbprof_is_missing()
    else:
        begin()


def _say_that_cbprof_is_missing() -> None:
    import json

    folder = json.loads(os.environ.get("CBPROF_RECORD", "{}")).get("folder", "")
    if os.path.isdir(folder):
        with open(os.path.join(folder, f"{os.getpid()}.status"), "w", encoding="utf-8") as file:
            json.dump({"pid": os.getpid(), "python": sys.executable, "has_cbprof": False}, file)


def _run_the_one_that_this_hides() -> None:
    """There may be another sitecustomize, of the distribution or the user."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]
_begin()
_run_the_one_that_this_hides()
