"""Events: everything that can ever have happened in a run, as one closed, tagged union.

Rule: past tense, frozen, never edited. Fields are only ever added, at the end, with defaults; a field
never changes its type or meaning; a tag is never reused. All tags of format 1 stand here, also those
that later features fill in, so that a log written today is read by every later version.
Does not know: how events lie on disk, when they are written, or what they mean (core/state.py).
Must change together: core/state.py, and the golden log under tests/.

Times are integers, nanoseconds since the epoch, read from an injected clock by whoever writes the event.
Values of users (`input`, `output`, `value`, `asked`, `sent`) are msgpack bytes: a reader without the
user's classes decodes them as plain data. Digests are lower-case hex of SHA-256. A scope is the tuple of
names that leads to a call: ``("reputation", "item:198.51.100.7")``.
"""

from typing import Literal, TypeAlias

import msgspec

Scope: TypeAlias = tuple[str, ...]


class ErrorData(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as data: never pickled, the same on every replay."""

    type: str
    message: str
    transient: bool = False


class EventBase(msgspec.Struct, frozen=True, tag=True, tag_field="type", omit_defaults=True):
    """Base of every event: a map with its class name under `type`, defaults left out."""


# ---- run ---------------------------------------------------------------------------------------


class RunStarted(EventBase, frozen=True):
    workflow: str
    version: str
    input: bytes
    input_digest: str
    incarnation: str = ""


class RunClaimed(EventBase, frozen=True):
    owner: str
    epoch: int
    token: str


class RunCompleted(EventBase, frozen=True):
    output: bytes = b""
    open_calls: tuple[str, ...] = ()


class RunFailed(EventBase, frozen=True):
    error: ErrorData
    open_calls: tuple[str, ...] = ()


class RunReopened(EventBase, frozen=True):
    by: str
    reason: str = ""


class CancelRequested(EventBase, frozen=True):
    by: str
    reason: str = ""


class RunCancelled(EventBase, frozen=True):
    open_calls: tuple[str, ...] = ()


class RunForked(EventBase, frozen=True):
    parent: str
    at: int


class RunPruned(EventBase, frozen=True):
    by: str
    reason: str = ""


# ---- node --------------------------------------------------------------------------------------


class NodeStarted(EventBase, frozen=True):
    node: str
    key: str
    attempt: int = 1
    item: str = ""


class NodeOutput(EventBase, frozen=True):
    """`upstream` and `files` hold the digests that this output was computed from."""

    node: str
    key: str
    output: bytes
    output_digest: str
    attempt: int = 1
    item: str = ""
    upstream: dict[str, str] = {}
    files: dict[str, str] = {}
    source_run: str = ""
    blob: str = ""
    parts: dict[str, str] = {}
    """The parts of the node key, each as a digest: what `plan` compares to say why."""
    cost: float = 0.0


class NodeFailed(EventBase, frozen=True):
    """`retry_at_ns` is when the next attempt may start; None: no further attempt."""

    node: str
    key: str
    attempt: int
    error: ErrorData
    item: str = ""
    retry_at_ns: int | None = None


# ---- call: each of these names its attempt -----------------------------------------------------


class IntentRecorded(EventBase, frozen=True):
    """Durable before the first byte leaves. `asked` is identity, `sent` gives the key."""

    call: str
    attempt: int
    tool: str
    key: str
    marker: str
    scope: Scope
    asked: bytes
    sent: bytes
    asked_digest: str
    instance: str = ""
    label: str = ""
    ordinal: int = 0
    own_key: str = ""
    approved: bytes | None = None
    prepared: bytes = b""
    target: str = ""
    effect: str = "blind"
    at_ns: int = 0
    send_by_ns: int | None = None
    not_after_ns: int | None = None
    cost: float = 0.0


class CallAccepted(EventBase, frozen=True):
    call: str
    attempt: int
    receipt: bytes = b""


class ResultRecorded(EventBase, frozen=True):
    """The effect is done. Without `value` the result could not be recorded: `why` says so."""

    call: str
    attempt: int
    value: bytes | None = None
    why: str = ""
    digest: str = ""
    value_type: str = ""


class CallRejected(EventBase, frozen=True):
    call: str
    attempt: int
    error: ErrorData


class CallNotSent(EventBase, frozen=True):
    """`final` : the budget of attempts is used up, the caller was told."""

    call: str
    attempt: int
    error: ErrorData
    final: bool = False
    retry_at_ns: int | None = None


class OutcomeUnknown(EventBase, frozen=True):
    """Sent, and no answer that can be trusted. `cause`: crash, cancelled, timeout, error, already-there."""

    call: str
    attempt: int
    cause: str
    error: ErrorData | None = None
    at_ns: int = 0


class IntentReconciled(EventBase, frozen=True):
    """A verdict on one attempt. `by` is "probe", "policy", or "human:NAME"."""

    call: str
    attempt: int
    verdict: Literal["happened", "absent", "skipped"]
    by: str
    value: bytes | None = None
    whose: Literal["ours", "theirs", "unknown"] = "ours"
    gone: bool = False
    evidence: str = ""
    why: str = ""
    at_ns: int = 0


class EvidenceAdded(EventBase, frozen=True):
    """A late answer, a late or contradicting verdict: kept, never a second settlement."""

    call: str
    attempt: int
    source: str
    detail: str
    duplicate: bool = False
    at_ns: int = 0


# ---- read --------------------------------------------------------------------------------------


class StepRecorded(EventBase, frozen=True):
    """A read: exactly one of `value` and `error` is set, or neither where its caller gave up waiting."""

    scope: Scope
    name: str
    args_digest: str
    label: str = ""
    ordinal: int = 0
    value: bytes | None = None
    error: ErrorData | None = None
    abandoned: bool = False
    waited_s: float = 0.0
    asked: bytes = b""
    cost: float = 0.0


# ---- people and waiting ------------------------------------------------------------------------


class QuestionAsked(EventBase, frozen=True):
    """`subject` is a call id or a node; `digest` is what exactly is asked about."""

    question: str
    kind: Literal["unknown", "approval", "stale", "pinned", "conflict"]
    subject: str
    text: str
    digest: str = ""
    attempt: int = 0
    evidence: str = ""
    expires_ns: int | None = None
    at_ns: int = 0


class QuestionAnswered(EventBase, frozen=True):
    """`answer`: happened, absent, resend, skip, keep. Not `fits`: the question stays open, `why` says."""

    question: str
    by: str
    answer: str
    value: bytes | None = None
    reason: str = ""
    message: str = ""
    fits: bool = True
    why: str = ""
    at_ns: int = 0


class SignalReceived(EventBase, frozen=True):
    name: str
    payload: bytes
    message: str = ""
    sender: str = ""


class WaitOpened(EventBase, frozen=True):
    wait: str
    scope: Scope
    kind: str
    name: str = ""
    until_ns: int | None = None


class WaitResolved(EventBase, frozen=True):
    wait: str
    by: str
    value: bytes = b""


class WaitAbandoned(EventBase, frozen=True):
    """The caller of a call gave up waiting, after `waited_s`. The call itself goes on."""

    subject: str
    waited_s: float = 0.0
    scope: Scope = ()
    name: str = ""


# ---- log, sweeps, shared acts ------------------------------------------------------------------


class LogRestored(EventBase, frozen=True):
    by: str
    detail: str = ""


class GapFound(EventBase, frozen=True):
    first: int
    last: int
    detail: str = ""


class SweepRecorded(EventBase, frozen=True):
    tool: str
    instance: str
    complete: bool
    orphans: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    seen: int = 0


class Held(EventBase, frozen=True):
    holder: str
    call: str = ""


class Released(EventBase, frozen=True):
    holder: str


Event: TypeAlias = (
    RunStarted | RunClaimed | RunCompleted | RunFailed | RunReopened | CancelRequested
    | RunCancelled | RunForked | RunPruned
    | NodeStarted | NodeOutput | NodeFailed
    | IntentRecorded | CallAccepted | ResultRecorded | CallRejected | CallNotSent
    | OutcomeUnknown | IntentReconciled | EvidenceAdded
    | StepRecorded
    | QuestionAsked | QuestionAnswered | SignalReceived | WaitOpened | WaitResolved | WaitAbandoned
    | LogRestored | GapFound | SweepRecorded | Held | Released
)  # fmt: skip
