"""Call back when the program has imported a module, without importing it ourselves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], None]


class AfterImport(MetaPathFinder):
    """Put first in ``sys.meta_path`` by :meth:`install`. Each callback is called once, with the module.

    A module that is loaded already gets its call at once.
    """

    def __init__(self, callbacks: dict[str, Callback]) -> None:
        self._callbacks = dict(callbacks)

    def install(self) -> None:
        sys.meta_path.insert(0, self)
        for name in list(self._callbacks):
            if (module := sys.modules.get(name)) is not None:
                self._callbacks.pop(name)(module)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        callback = self._callbacks.pop(fullname, None)
        if callback is None:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                if spec.loader is not None:
                    spec.loader = _Calling(spec.loader, callback)
                return spec
        self._callbacks[fullname] = callback  # it may be there later
        return None


class _Calling(Loader):
    """The module's own loader, with the call behind it. Once the module is loaded, nothing of this is left in it."""

    def __init__(self, loader: Any, callback: Callback) -> None:
        self._loader = loader
        self._callback = callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._callback(module)
