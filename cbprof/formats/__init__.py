"""How is a trace stored? Files in, files out."""

from cbprof.formats.chrome.write import TraceWriter, save
from cbprof.formats.importers import load

__all__ = ["TraceWriter", "load", "save"]
