"""Every table of the lake: one file, one table, one contract."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from schemas.contract import Table


@cache
def tables() -> dict[str, Table]:
    """All contracts by table name, in the order of the names: every module here that defines `TABLE`."""
    modules = (importlib.import_module(f"schemas.{m.name}") for m in pkgutil.iter_modules(__path__))
    found = [module.TABLE for module in modules if hasattr(module, "TABLE")]
    return {table.name: table for table in sorted(found, key=lambda table: table.name)}
