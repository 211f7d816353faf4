"""`evsrc.verify`: says whether a log is whole, without lock, extra or writer."""

from pathlib import Path

import msgspec
import pytest

from evsrc.log.file.log import FileLog
from evsrc.log.file.mark import MARK_NAME
from evsrc.log.file.meta import META_NAME
from evsrc.verify import VerifyReport, main, verify


async def _log(folder: Path, count: int = 5) -> FileLog:
    log = await FileLog.open(folder, namespace="n", segment_bytes_max=600)
    for number in range(count):
        await log.append("s", b"%d" % number)
    return log


async def test_a_whole_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Closed or beside its living writer: clean, with head, counts and identity; status 0."""
    log = await _log(tmp_path / "log")
    living = verify(tmp_path / "log")
    await log.aclose()
    report = verify(tmp_path / "log")
    assert (living.state, living.closed, report.state, report.closed) == (
        "clean",
        False,
        "clean",
        True,
    )
    assert (report.records, report.last_position, report.segments) == (5, 5, 3)
    assert (report.namespace, report.log_id) == ("n", log.log_id)
    assert len(report.head) == 64
    assert report.head != living.head
    assert main([str(tmp_path / "log")]) == 0
    assert "clean: 5 records in 3 segments" in capsys.readouterr().out


async def test_damage_is_told_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A flipped bit anywhere: status 4, and segment, offset and sequence, also as JSON."""
    await (await _log(tmp_path / "log")).aclose()
    for path in (tmp_path / "log").glob("*.evlog"):
        whole = path.read_bytes()
        for at in range(0, len(whole), 97):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            assert main([str(tmp_path / "log"), "--json"]) == 4
            report = msgspec.json.decode(capsys.readouterr().out, type=VerifyReport)
            assert (report.state, report.segment) == ("corrupt", path.name)
            assert 0 <= report.offset <= at
            assert report.sequence > 0
            assert report.reason
        path.write_bytes(whole)
    assert main([str(tmp_path / "log")]) == 0


@pytest.mark.parametrize("name", [META_NAME, MARK_NAME])
async def test_a_lost_file_is_damage(name: str, tmp_path: Path) -> None:
    """Without its meta or its mark a log is not whole."""
    await (await _log(tmp_path / "log")).aclose()
    (tmp_path / "log" / name).unlink()
    assert verify(tmp_path / "log").state == "corrupt"
    assert verify(tmp_path / "log").segment == name


async def test_a_torn_tail_is_told_and_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes that were never acknowledged are told, with status 0, and stay where they are."""
    await (await _log(tmp_path / "log")).aclose()
    last = max((tmp_path / "log").glob("*.evlog"))
    torn = last.read_bytes() + b"\xf5evr half a record"
    last.write_bytes(torn)
    assert main([str(tmp_path / "log")]) == 0
    assert "torn: 5 records" in capsys.readouterr().out
    assert verify(tmp_path / "log").segment == last.name
    assert last.read_bytes() == torn


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["--help"], ["-x", "p"]])
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Anything but one path is a usage error, told on standard error."""
    assert main(arguments) == 2
    assert "usage" in capsys.readouterr().err


def test_no_log_is_a_usage_error(tmp_path: Path) -> None:
    """A folder without a log, or no folder, is not an empty log."""
    assert main([str(tmp_path)]) == 2
    assert main([str(tmp_path / "nothing")]) == 2
