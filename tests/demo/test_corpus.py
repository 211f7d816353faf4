"""The corpus: forty findings that look real, and a loader that says where a bad one stands."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from evsrc.demo import corpus
from evsrc.demo.corpus import Finding, Indicator, UnreadableFindings, load_findings

SHARED = Path(__file__).parents[3] / "shared" / "data" / "ocsf"

SMALLEST = {
    "class_uid": 2004,
    "time": 1,
    "severity_id": 3,
    "metadata": {"version": "1.3.0"},
    "finding_info": {"uid": "f-1"},
}


def written(path: Path, *values: object) -> Path:
    path.write_text("\n".join(json.dumps(value) for value in values), encoding="utf-8")
    return path


def test_there_are_forty_findings_each_with_its_own_uid() -> None:
    """The demo counts by finding: forty of them, no uid twice, all of class 2004."""
    found = corpus.findings()
    assert len({finding.uid for finding in found}) == len(found) == 40
    assert {(f.class_uid, f.activity_id, f.type_uid) for f in found} == {(2004, 1, 200401)}
    assert all(finding.metadata.version == "1.3.0" for finding in found)


def test_every_finding_has_six_different_indicators() -> None:
    """The fan-out is six wide for every finding, and its items can be told apart by value."""
    for finding in corpus.findings():
        values = [one.value for one in corpus.indicators_of(finding)]
        assert len(set(values)) == len(values) == 6


def test_no_address_and_no_account_belongs_to_two_findings() -> None:
    """Two findings never act on one target, or the state of one would answer for the other."""
    found = corpus.findings()
    ips = [i.value for f in found for i in corpus.indicators_of(f) if i.kind == "ip"]
    accounts = [r.name for f in found for r in f.resources if r.type == "User Account"]
    assert len(ips) == len(set(ips))
    assert len(accounts) == len(set(accounts)) == 40


def test_nothing_in_the_corpus_exists_outside() -> None:
    """Addresses are from the documentation networks, domains from reserved names."""
    for finding in corpus.findings():
        for one in corpus.indicators_of(finding):
            if one.kind == "ip":
                assert one.value.startswith(("198.51.100.", "203.0.113.", "192.0.2."))
            if one.kind == "domain":
                assert one.value.endswith((".test", ".example.org"))
            if one.kind == "sha256":
                assert len(bytes.fromhex(one.value)) == 32


def test_some_titles_are_hostile() -> None:
    """Escape sequences, line breaks, a direction override, quotes and great length are covered."""
    text = "".join(finding.finding_info.title for finding in corpus.findings())
    assert all(one in text for one in ("\x1b", "\n", "\u202e", '"', "'", "\x00", "<script>"))
    assert max(len(finding.finding_info.title) for finding in corpus.findings()) > 2000


def test_the_second_feed_differs_in_a_few_lines() -> None:
    """The stale-feed case needs two versions that agree almost everywhere."""
    one, two = (Path(corpus.feed_path(n)).read_text().splitlines() for n in (1, 2))
    assert 0 < len(set(one) ^ set(two)) < 10
    assert len(one) > 90


def test_the_feed_knows_only_indicators_of_the_corpus() -> None:
    """An entry that no finding names would never be read."""
    known = {i.value for f in corpus.findings() for i in corpus.indicators_of(f)}
    for version in (1, 2):
        assert set(json.loads(Path(corpus.feed_path(version)).read_text())) <= known


def test_there_is_no_third_feed() -> None:
    """A wrong version is refused at once and not as a missing file."""
    with pytest.raises(ValueError, match="versions 1 and 2, not 3"):
        corpus.feed_path(3)


def test_a_finding_survives_encoding() -> None:
    """What the log stores of a finding is the finding."""
    for finding in corpus.findings():
        raw = msgspec.msgpack.encode(finding)
        assert msgspec.msgpack.decode(raw, type=Finding) == finding


def test_real_findings_load() -> None:
    """Findings written by products, not by us, are read, and give something to look up."""
    if not SHARED.is_dir():
        pytest.skip(f"no real findings at {os.path.relpath(SHARED)}")
    files = sorted(SHARED.glob("*.ocsf.json"))
    assert files
    for file in files:
        (finding,) = load_findings(file)
        assert finding.uid
        assert any(one.kind == "ip" for one in corpus.indicators_of(finding))


def test_indicators_come_from_evidences_where_observables_are_missing(tmp_path: Path) -> None:
    """A finding without observables still names its addresses, domains, files and resources."""
    evidence = {
        "src_endpoint": {"ip": "192.0.2.1", "hostname": "WS-1.test"},
        "dst_endpoint": {"ip": "192.0.2.1"},
        "file": {"hashes": [{"algorithm_id": 3, "value": "AB"}, {"algorithm_id": 1, "value": "C"}]},
    }
    value = {**SMALLEST, "evidences": [evidence], "resources": [{"name": "Key/A"}]}
    (finding,) = load_findings(written(tmp_path / "one.json", value))
    assert corpus.indicators_of(finding) == [
        Indicator("ip", "192.0.2.1"),
        Indicator("domain", "ws-1.test"),
        Indicator("sha256", "ab"),
        Indicator("resource", "Key/A"),
    ]


def test_a_file_holds_one_a_list_or_one_a_line(tmp_path: Path) -> None:
    """All three usual forms give the same findings."""
    other = {**SMALLEST, "finding_info": {"uid": "f-2"}}
    lines = load_findings(written(tmp_path / "a.jsonl", SMALLEST, other))
    many = load_findings(written(tmp_path / "b.json", [SMALLEST, other]))
    one = load_findings(written(tmp_path / "c.json", SMALLEST))
    assert lines == many
    assert one == many[:1]


def test_a_folder_is_read_in_order_of_names(tmp_path: Path) -> None:
    """Every JSON file of a folder counts, other files do not."""
    written(tmp_path / "b.json", SMALLEST)
    written(tmp_path / "a.jsonl", {**SMALLEST, "finding_info": {"uid": "f-0"}})
    (tmp_path / "notes.txt").write_text("no finding")
    assert [finding.uid for finding in load_findings(tmp_path)] == ["f-0", "f-1"]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("{", "truncated"),
        ("[]", "Expected `object`"),
        (json.dumps({**SMALLEST, "class_uid": 2001}), r"class_uid"),
        (json.dumps({**SMALLEST, "time": "\x1b[2J"}), r"time"),
        (json.dumps({**SMALLEST, "finding_info": {}}), "`uid`"),
        ("[" * 100_000, "not an OCSF"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, bad: str, why: str) -> None:
    """The error says which file, which line and what was expected, and repeats no alert text."""
    file = tmp_path / "some.jsonl"
    file.write_text(json.dumps(SMALLEST) + "\n\n" + bad + "\n")
    with pytest.raises(UnreadableFindings, match=why) as caught:
        load_findings(file)
    assert "some.jsonl, line 3: " in str(caught.value)
    assert str(caught.value).isprintable()


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    """Invalid UTF-8 is a bad file, not a crash of the loader."""
    file = tmp_path / "bytes.json"
    file.write_bytes(json.dumps(SMALLEST).encode().replace(b"f-1", b"\xff\xfe"))
    with pytest.raises(UnreadableFindings, match=r"bytes\.json"):
        load_findings(file)


def test_a_hostile_file_name_is_escaped(tmp_path: Path) -> None:
    """Not even the name of a file reaches the terminal as it is."""
    file = tmp_path / "\x1b[31m\n.json"
    file.write_text("{}")
    with pytest.raises(UnreadableFindings) as caught:
        load_findings(file)
    assert str(caught.value).isprintable()


def test_a_uid_twice_is_refused(tmp_path: Path) -> None:
    """Two findings with one uid would be one run; both places are named."""
    written(tmp_path / "a.json", SMALLEST)
    written(tmp_path / "b.json", [SMALLEST])
    with pytest.raises(UnreadableFindings, match=r"b\.json, item 1: the same .*a\.json"):
        load_findings(tmp_path)


@pytest.mark.parametrize("content", ["[]", "", "\n\n"])
def test_an_empty_file_is_refused(tmp_path: Path, content: str) -> None:
    """Nothing to do is more often a wrong path than a wish."""
    file = tmp_path / "empty.jsonl"
    if content == "[]":
        file = tmp_path / "empty.json"
    file.write_text(content)
    with pytest.raises(UnreadableFindings, match="at least one finding"):
        load_findings(file)


def test_a_missing_path_and_an_empty_folder_are_named(tmp_path: Path) -> None:
    """Both errors name the path."""
    with pytest.raises(UnreadableFindings, match=r"nowhere\.json: cannot be read"):
        load_findings(tmp_path / "nowhere.json")
    with pytest.raises(UnreadableFindings, match="found none"):
        load_findings(tmp_path)


def test_an_empty_uid_is_refused(tmp_path: Path) -> None:
    """A run is named after the finding, so the finding needs a name."""
    with pytest.raises(UnreadableFindings, match="uid is empty"):
        load_findings(written(tmp_path / "a.json", {**SMALLEST, "finding_info": {"uid": ""}}))


def test_a_file_over_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit is a number in the message, not an exhausted memory."""
    monkeypatch.setattr(corpus, "FILE_BYTES_MAX", 50)
    with pytest.raises(UnreadableFindings, match="larger than 50 bytes"):
        load_findings(written(tmp_path / "a.json", SMALLEST))
