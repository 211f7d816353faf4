"""The findings that the demo works on: OCSF Detection Findings (class 2004) as small Structs.

Rule: only the fields that the workflow uses are decoded, the rest of a finding is ignored. Text of
a finding is written by attackers: it stays data, and no error message repeats it unescaped.
Does not know: the workflow, the world, evsrc's log.
Must change together: data/findings.jsonl and the two data/feed-v*.json (their indicators).
"""

import os
from collections.abc import Iterable, Iterator
from typing import Literal, TypeVar

import msgspec

from evsrc.errors import CallerError

FILE_BYTES_MAX = 64 * 1024 * 1024
"""Largest file of findings read at once: a wrong path should not fill the memory."""

PATH_CHARS_MAX = 300
"""How much of a file's name an error repeats."""

T = TypeVar("T")

IndicatorKind = Literal["ip", "domain", "sha256", "resource"]

OBSERVABLE_KINDS: tuple[tuple[int, IndicatorKind], ...] = ((1, "domain"), (2, "ip"), (8, "sha256"))
"""OCSF `type_id` of an observable, kind of indicator; other observables (user names) are none."""

SHA256_ID = 3
"""OCSF `algorithm_id` of SHA-256; other digests are not looked up."""


class UnreadableFindings(CallerError, ValueError):
    """Raised when a file does not hold Detection Findings; names the file, and the line if any."""


class Product(msgspec.Struct, frozen=True):
    """Who made the finding."""

    name: str = ""
    vendor_name: str = ""


class Metadata(msgspec.Struct, frozen=True):
    """OCSF version and origin."""

    version: str
    product: Product = Product()


class FindingInfo(msgspec.Struct, frozen=True):
    """What was found. `title` and `desc` are text that an attacker may have written."""

    uid: str
    title: str = ""
    desc: str = ""
    types: list[str] = []


class Observable(msgspec.Struct, frozen=True):
    """A value in the finding that can be looked up elsewhere."""

    name: str = ""
    type_id: int = 0
    value: str | None = None


class Endpoint(msgspec.Struct, frozen=True):
    """One side of a connection."""

    ip: str = ""
    hostname: str = ""
    domain: str = ""


class Fingerprint(msgspec.Struct, frozen=True):
    """A digest of a file. `algorithm_id` 3 is SHA-256."""

    value: str
    algorithm_id: int = 0


class File(msgspec.Struct, frozen=True):
    """A file named as evidence."""

    name: str = ""
    hashes: list[Fingerprint] = []


class Evidence(msgspec.Struct, frozen=True):
    """What the detection saw."""

    src_endpoint: Endpoint = Endpoint()
    dst_endpoint: Endpoint = Endpoint()
    file: File = File()


class Resource(msgspec.Struct, frozen=True):
    """What the finding is about: an account, a host, a key."""

    name: str = ""
    type: str = ""
    uid: str = ""
    labels: list[str] = []


class Finding(msgspec.Struct, frozen=True):
    """The part of an OCSF Detection Finding that the demo uses. `time` is in ms since 1970."""

    class_uid: Literal[2004]
    time: int
    severity_id: int
    metadata: Metadata
    finding_info: FindingInfo
    activity_id: int = 0
    type_uid: int = 0
    observables: list[Observable] = []
    evidences: list[Evidence] = []
    resources: list[Resource] = []

    @property
    def uid(self) -> str:
        """The finding's own id, unique in its product."""
        return self.finding_info.uid


class Indicator(msgspec.Struct, frozen=True):
    """A value that an intel feed may know. Domains and digests are lower case."""

    kind: IndicatorKind
    value: str


def findings() -> list[Finding]:
    """The forty findings of the demo, in order of time, six indicators each, every `uid` once.

    Raises:
        UnreadableFindings: the installed data file is damaged or missing.
    """
    return load_findings(corpus_path())


def corpus_path() -> str:
    """Path of the demo's findings, one JSON object a line."""
    return _data_path("findings.jsonl")


def feed_path(version: int) -> str:
    """Path of the demo's intel feed; version 2 differs from 1 in four lines.

    Raises:
        ValueError: there is no such version.
    """
    if version not in (1, 2):
        raise ValueError(f"the demo has feed versions 1 and 2, not {version!r}")
    return _data_path(f"feed-v{version}.json")


def _data_path(name: str) -> str:
    from importlib.resources import files

    return str(files("evsrc.demo").joinpath("data", name))


def load_findings(path: str | os.PathLike[str]) -> list[Finding]:
    """Findings of one file, or of every *.json and *.jsonl file directly in a folder, by name.

    A file holds one finding, a JSON list of findings, or one finding a line (*.jsonl, *.ndjson).

    Raises:
        UnreadableFindings: nothing to read there, no JSON, or no Detection Finding; a uid twice.
    """
    where = os.fspath(path)
    if os.path.isdir(where):
        names = sorted(n for n in os.listdir(where) if n.endswith((".json", ".jsonl", ".ndjson")))
        if not names:
            raise UnreadableFindings(f"{_shown(where)}: expected *.json or *.jsonl, found none")
        files = [os.path.join(where, name) for name in names]
    else:
        files = [where]
    found = [pair for file in files for pair in _load_file(file)]
    _refuse_twice(found)
    return [finding for _, finding in found]


def _load_file(path: str) -> list[tuple[str, Finding]]:
    raw = _read(path)
    shown = _shown(path)
    if path.endswith((".jsonl", ".ndjson")):
        lines = enumerate(raw.split(b"\n"), start=1)
        found = [
            (where := f"{shown}, line {number}", _decode(line, Finding, where))
            for number, line in lines
            if line.strip()
        ]
    elif raw.lstrip().startswith(b"["):
        many = _decode(raw, list[Finding], shown)
        found = [(f"{shown}, item {n}", one) for n, one in enumerate(many, start=1)]
    else:
        found = [(shown, _decode(raw, Finding, shown))]
    if not found:
        raise UnreadableFindings(f"{shown}: expected at least one finding, the file holds none")
    return found


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UnreadableFindings(f"{_shown(path)}: cannot be read: {why}") from error
    if len(raw) > FILE_BYTES_MAX:
        raise UnreadableFindings(f"{_shown(path)}: larger than {FILE_BYTES_MAX} bytes; split it")
    return raw


def _decode(raw: bytes, kind: type[T], where: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # msgspec names positions and types, hardly ever text; escaped all the same.
        why = ascii(str(error))[1:-1][:PATH_CHARS_MAX]
        raise UnreadableFindings(f"{where}: not an OCSF Detection Finding (2004): {why}") from None


def _refuse_twice(found: Iterable[tuple[str, Finding]]) -> None:
    first: dict[str, str] = {}
    for where, finding in found:
        if not finding.uid:
            raise UnreadableFindings(f"{where}: finding_info.uid is empty; give it one")
        other = first.setdefault(finding.uid, where)
        if other != where:
            raise UnreadableFindings(f"{where}: the same finding_info.uid as {other}; remove one")


def _shown(path: str) -> str:
    """A file's name without control characters: names, too, may be chosen by an attacker."""
    return ascii(path)[1:-1][:PATH_CHARS_MAX]


def indicators_of(finding: Finding) -> list[Indicator]:
    """What can be looked up, in the order found, each value once.

    Taken from `observables`; where these name none, from the evidences and resources instead.
    """
    kinds = dict(OBSERVABLE_KINDS)
    found: list[tuple[IndicatorKind, str]] = [
        (kinds[seen.type_id], seen.value or "")
        for seen in finding.observables
        if seen.type_id in kinds
    ]
    if not found:
        found = [*_from_evidences(finding.evidences), *_from_resources(finding.resources)]
    unique: dict[str, Indicator] = {}
    for kind, value in found:
        value = value.strip() if kind == "resource" else value.strip().lower()
        if value:
            unique.setdefault(value, Indicator(kind, value))
    return list(unique.values())


def _from_evidences(evidences: Iterable[Evidence]) -> Iterator[tuple[IndicatorKind, str]]:
    for evidence in evidences:
        for end in (evidence.src_endpoint, evidence.dst_endpoint):
            yield ("ip", end.ip)
            yield ("domain", end.domain or end.hostname)
        for one in evidence.file.hashes:
            if one.algorithm_id == SHA256_ID:
                yield ("sha256", one.value)


def _from_resources(resources: Iterable[Resource]) -> Iterator[tuple[IndicatorKind, str]]:
    for one in resources:
        yield ("resource", one.uid or one.name)
