"""The inbox: messages come whole, in order, under drawn names; nothing a stranger puts there hurts."""

import os
from pathlib import Path

import pytest

from evsrc.errors import LimitExceeded
from evsrc.log.file import inbox
from evsrc.log.file.inbox import INBOX_BYTES_MAX, Inbox, drop


def test_what_is_dropped_arrives_once(tmp_path: Path) -> None:
    """Messages are listed in the order of their writing until they are done; done twice is fine."""
    owner = Inbox(tmp_path)
    bodies = [b"first", b"", bytes(range(256))]
    names = [drop(tmp_path, body) for body in bodies]
    for age, name in enumerate(names):
        os.utime(tmp_path / "inbox" / name, ns=(age, age))
    assert owner.list() == list(zip(names, bodies, strict=True))
    owner.done(names[0])
    owner.done(names[0])
    assert Inbox(tmp_path).list() == list(zip(names, bodies, strict=True))[1:]


def test_names_are_drawn(tmp_path: Path) -> None:
    """A name is random hex from the given entropy, the folder 0700 and the file 0600."""
    name = drop(tmp_path, b"x", name_entropy=lambda size: b"\xab" * size)
    assert name == "ab" * 16 + ".msg"
    assert (tmp_path / "inbox").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "inbox" / name).stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        (tmp_path / "inbox" / f"{name}.tmp").touch()
        drop(tmp_path, b"x", name_entropy=lambda size: b"\xab" * size)


def test_half_written_messages_are_not_there(tmp_path: Path) -> None:
    """A sender that was killed leaves a *.tmp, which is no message."""
    owner = Inbox(tmp_path)
    (tmp_path / "inbox" / "00.msg.tmp").write_bytes(b"half")
    (tmp_path / "inbox" / "notes.txt").write_bytes(b"?")
    assert owner.list() == []


def test_what_cannot_be_a_message_is_moved_away(tmp_path: Path) -> None:
    """Too large, a link, a pipe, a folder: moved to refused/, and the others still arrive."""
    owner, folder = Inbox(tmp_path), tmp_path / "inbox"
    (folder / "a.msg").write_bytes(bytes(INBOX_BYTES_MAX + 1))
    (folder / "b.msg").symlink_to("/etc/hostname")
    os.mkfifo(folder / "c.msg")
    (folder / "d.msg").mkdir()
    (folder / "e.msg").write_bytes(bytes(INBOX_BYTES_MAX))
    assert [(name, len(message)) for name, message in owner.list()] == [("e.msg", INBOX_BYTES_MAX)]
    assert sorted(os.listdir(folder / "refused")) == ["a.msg", "b.msg", "c.msg", "d.msg"]
    assert len(owner.list()) == 1


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too large or too many is refused to the sender; a flood is taken in pieces."""
    owner = Inbox(tmp_path)
    with pytest.raises(LimitExceeded, match="message"):
        drop(tmp_path, bytes(INBOX_BYTES_MAX + 1))
    names = {drop(tmp_path, b"x") for _ in range(3)}
    monkeypatch.setattr(inbox, "INBOX_MESSAGES_MAX", 3)
    with pytest.raises(LimitExceeded, match="at most 3 messages wait"):
        drop(tmp_path, b"x")
    monkeypatch.setattr(inbox, "INBOX_MESSAGES_MAX", 2)
    assert {name for name, _ in owner.list()} < names
    assert len(owner.list()) == 2


@pytest.mark.parametrize("name", ["../log.meta", "../x.msg", "x.tmp", "/etc/x.msg"])
def test_done_removes_messages_only(name: str, tmp_path: Path) -> None:
    """A name that `list` never gave is refused."""
    with pytest.raises(ValueError, match="not the name of a message"):
        Inbox(tmp_path).done(name)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """Dropping for a log that does not exist is an error, and makes nothing."""
    with pytest.raises(FileNotFoundError):
        drop(tmp_path / "nothing", b"x")
    assert list(tmp_path.iterdir()) == []
