"""How a trace is stored: files in, files out."""

from cbprof.formats.chrome_write import TraceWriter, save
from cbprof.formats.detect import load

__all__ = ["TraceWriter", "load", "save"]
