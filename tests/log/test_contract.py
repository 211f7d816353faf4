"""Every backend passes the one contract suite."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from evsrc.log.base import Log
from evsrc.log.file.log import FileLog
from evsrc.log.memory import MemoryLog
from evsrc.testing.log_contract import CHECKS, Check


async def _memory(folder: Path) -> Log:
    return MemoryLog()


async def _file(folder: Path) -> Log:
    return await FileLog.open(folder / "log")


async def _file_small_segments(folder: Path) -> Log:
    return await FileLog.open(folder / "log", segment_bytes_max=1024, lazy_sync_s=None)


BACKENDS: tuple[Callable[[Path], Awaitable[Log]], ...] = (_memory, _file, _file_small_segments)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.__name__.strip("_"))
async def test_contract(
    backend: Callable[[Path], Awaitable[Log]], check: Check, tmp_path: Path, anyio_backend: str
) -> None:
    """What the check's own sentence says."""
    await check(lambda: backend(tmp_path))
