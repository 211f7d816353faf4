"""The driver of one call: performs what core/decide.py says until the call is settled or parked.

Rule: one driver per call, in the runtime's own task group, so that no cancellation of a caller can reach
a recording. Cancelling the caller cancels the scope of the send, never the recording of what is known.
Does not know: why an action is right; it holds no rule about outcomes.

Moments, each emitted here and nowhere else: before_intent, after_intent, answered, after_result.
"""

import math
from collections.abc import Sequence
from typing import Any

import anyio
import msgspec

from evsrc.core import decide, departure, keys, reports
from evsrc.core.calls import CallState
from evsrc.core.codec import round_trip
from evsrc.core.events import (
    ErrorData,
    Event,
    IntentRecorded,
    OutcomeUnknown,
    QuestionAsked,
    Scope,
)
from evsrc.core.settle import Look
from evsrc.core.verdicts import AnyVerdict, Happened, Undetermined
from evsrc.errors import (
    AlreadyThere,
    EvsrcError,
    NotSent,
    Rejected,
    Throttled,
)
from evsrc.runtime.journal import Journal
from evsrc.runtime.observer import Moment, MomentName
from evsrc.runtime.recording import answered, error_data, redacted
from evsrc.runtime.services import Services
from evsrc.tools.binding import Bound
from evsrc.tools.bound import BoundTool
from evsrc.tools.call import Call, Secrets

PROBE_TIMEOUT_S = 30.0
"""A look that takes longer is no answer; the next one may be."""


class CallSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What identifies a call, with its arguments as bytes. All of it goes into the intent."""

    call: str
    key: str
    scope: Scope
    label: str
    ordinal: int
    own_key: str
    asked: bytes
    asked_digest: str
    target: str


class Driver:
    """Settles one call. `bound` is None where only the log knows the arguments: then nothing is sent."""

    def __init__(
        self,
        services: Services,
        journal: Journal,
        tool: BoundTool,
        spec: CallSpec,
        bound: Bound | None = None,
        *,
        not_after_ns: int | None = None,
    ) -> None:
        self.services = services
        self.journal = journal
        self.tool = tool
        self.spec = spec
        self.bound = bound
        self.not_after_ns = not_after_ns
        self.ended = anyio.Event()
        self.parked = False
        self.error: EvsrcError | None = None
        """The log refused: the caller gets this, the call stays what the log says."""
        self.state_changed = anyio.Event()
        """Set and replaced whenever `parked` or `ended` changed."""
        self._gave_up = False
        self._closing = False
        self._callers = 0
        self._preparing: anyio.CancelScope | None = None
        self._sending: anyio.CancelScope | None = None
        self._looking: anyio.CancelScope | None = None
        self._in_flight = False
        self._doubt_began = services.clock.monotonic()
        self._looks = 0
        self._look: Look | None = None

    # ---- for callers ----------------------------------------------------------------------------

    def attach(self, spec: CallSpec, bound: Bound, not_after_ns: int | None) -> None:
        """User code asks for this call again: it may be sent again if that is what is owed."""
        self.spec = spec
        self.bound, self._gave_up, self.not_after_ns = bound, False, not_after_ns
        self.journal.wake(self.spec.call)

    def join(self) -> None:
        """One more caller waits: several may, under a key of their own."""
        self._callers += 1

    def leave(self, *, gave_up: bool) -> None:
        """A caller waits no more. Only the last one that gives up stops the call."""
        self._callers -= 1
        if gave_up and not self._callers:
            self.give_up()

    def give_up(self) -> None:
        """The caller left: stop the send, go on settling, send nothing new."""
        self._gave_up = True
        for scope in (self._preparing, self._sending):
            if scope is not None:
                scope.cancel()
        self.journal.wake(self.spec.call)

    def close(self) -> None:
        """The runtime closes: stop the send, record what is known, leave the rest to the next owner."""
        self._closing = True
        self.give_up()
        if self._looking is not None:
            self._looking.cancel()

    @property
    def call(self) -> CallState | None:
        """The call's state in the log."""
        return self.journal.state.calls.get(self.spec.call)

    # ---- the loop -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Drive the call to its end. Never raises an `EvsrcError`: it is handed to the caller."""
        try:
            while True:
                action = decide.next_action(self.call, self.tool.capabilities, self._situation())
                if isinstance(action, decide.Finish):
                    break
                if isinstance(action, decide.Append):
                    await self._record(action.events)
                    continue
                if self._closing:
                    break
                with anyio.CancelScope() as self._looking:
                    await self._perform(action)
        except EvsrcError as error:
            self.error = error
        finally:
            self.services.drivers.pop((self.journal.run_id, self.spec.call), None)
            call = self.call
            if call is None or not call.unknown:
                self.services.free_target(self.spec.target, self.spec.call)
            self.ended.set()
            self._announce()

    def _situation(self) -> decide.Situation:
        clock = self.services.clock
        busy = self.services.targets.get(self.spec.target, self.spec.call) != self.spec.call
        return decide.Situation(
            now_ns=clock.now_ns(),
            in_flight=self._in_flight,
            waited_s=clock.monotonic() - self._doubt_began,
            looks=self._looks,
            look=self._look,
            asked_digest="" if self.bound is None else self.spec.asked_digest,
            target_busy=bool(self.spec.target) and busy,
            not_after_ns=self.not_after_ns,
            stopping=self._gave_up or self.bound is None,
            given_up=self.spec.call in self.journal.state.gave_up,
        )

    async def _perform(self, action: decide.Action) -> None:
        match action:
            case decide.RecordIntent():
                self._looking = None  # an attempt is stopped through its send, never in a recording
                await self._attempt(action)
            case decide.LookAtTool(attempt, pause_s):
                await self._pause(pause_s)
                await self._probe(attempt)
            case decide.Wait(None, _):
                await self._either_changes()
            case decide.Wait(seconds, _):
                await self._pause(seconds or 0.0)
            case decide.Park():
                await self._park()
            case decide.Append() | decide.Finish():
                raise AssertionError("performed by the loop")

    async def _record(self, events: Sequence[Event]) -> None:
        await self.journal.append(events, durable=True, essential=True)
        for event in events:
            if isinstance(event, OutcomeUnknown):
                self._doubt_began = self.services.clock.monotonic()
                self._moment("outcome_unknown", event.attempt, event.cause)
            elif isinstance(event, QuestionAsked):
                self._moment("question", event.attempt, event.kind)

    async def _pause(self, seconds: float) -> None:
        """Sleep, or wake early when something about the call changed."""
        if seconds <= 0:
            return
        async with anyio.create_task_group() as group:

            async def slept() -> None:
                await self.services.clock.sleep(seconds)
                group.cancel_scope.cancel()

            group.start_soon(slept)
            await self.journal.changed(self.spec.call)
            group.cancel_scope.cancel()

    async def _either_changes(self) -> None:
        async with anyio.create_task_group() as group:

            async def freed() -> None:
                await self.services.target_changed()
                group.cancel_scope.cancel()

            group.start_soon(freed)
            await self.journal.changed(self.spec.call)
            group.cancel_scope.cancel()

    async def _park(self) -> None:
        self.parked = True
        self._announce()
        try:
            await self.journal.changed(self.spec.call)
        finally:
            self.parked = False
            self._looks, self._look = 0, None  # an answer may make a new look worth it
            self._announce()

    def _announce(self) -> None:
        self.state_changed.set()
        self.state_changed = anyio.Event()

    def _moment(self, name: MomentName, attempt: int, detail: str = "") -> None:
        scope = self.spec.scope
        self.services.emit(
            Moment(
                name,
                self.journal.run_id,
                call=self.spec.call,
                tool=self.tool.name,
                node=scope[0] if scope else "",
                attempt=attempt,
                detail=detail,
            )
        )

    # ---- intent, execute, result ----------------------------------------------------------------

    async def _attempt(self, action: decide.RecordIntent) -> None:
        limiter = self.services.limiter(self.tool)
        if limiter is None:
            await self._attempt_now(action)
            return
        async with limiter:
            await self._attempt_now(action)

    async def _attempt_now(self, action: decide.RecordIntent) -> None:
        bound = self.bound
        if bound is None:
            raise AssertionError("an intent is only owed where the arguments are known")
        if self._gave_up or not self.services.take_target(self.spec.target, self.spec.call):
            return
        if action.attempt == 1:
            self._moment("before_intent", action.attempt)
        prepared, failure = await self._prior(action, bound)
        # Every permission is checked once more, last: the queue, the limiter and the look took time.
        # Unless it still holds nothing is sent, and no intent says that it might have been.
        still = decide.next_action(self.call, self.tool.capabilities, self._situation())
        if still != action:
            return
        intent = self._intent(action.attempt, prepared)
        instead = self._instead(intent, stale=action.stale, failure=failure)
        if instead:
            await self._record([intent, *instead])
            self._doubt_began = self.services.clock.monotonic()
            return
        await self.journal.append([intent], durable=True)
        self._moment("after_intent", action.attempt)
        self._looks, self._look = 0, None
        instead = self._instead(intent)  # once more: the disk took time too
        if instead:
            await self._record(instead)
            return
        call = self._call(action.attempt, prepared, intent.at_ns)
        report = await self._send(call, bound)
        self._doubt_began = self.services.clock.monotonic()
        state = self.call
        if state is None:
            raise AssertionError("an intent landed and its call is not in the state")
        events = reports.after_send(
            state,
            action.attempt,
            report,
            self.tool.capabilities,
            self.services.clock.now_ns(),
        )
        await self._record(events)
        self._moment("after_result", action.attempt, type(report).__name__)

    def _instead(
        self, intent: IntentRecorded, *, stale: bool = False, failure: ErrorData | None = None
    ) -> tuple[Event, ...]:
        """What takes the place of the send now; empty if it may leave."""
        services = self.services
        used = services.own_keys.get(intent.key)
        elsewhere = used is not None and used.run_id != self.journal.run_id
        at = departure.Departure(
            now_ns=services.clock.now_ns(),
            stale=stale,
            failure=failure,
            gave_up=self._gave_up,
            seen_elsewhere=elsewhere or intent.marker in services.orphans,
        )
        return departure.instead_of_sending(self.call, intent, self.tool.capabilities, at)

    def _intent(self, attempt: int, prepared: bytes) -> IntentRecorded:
        caps, spec = self.tool.capabilities, self.spec
        now_ns = self.services.clock.now_ns()
        return IntentRecorded(
            spec.call,
            attempt,
            self.tool.name,
            spec.key,
            keys.marker(self.services.log.namespace, spec.key),
            spec.scope,
            spec.asked,
            spec.asked,
            spec.asked_digest,
            instance=self.tool.instance,
            label=spec.label,
            ordinal=spec.ordinal,
            own_key=spec.own_key,
            prepared=prepared,
            target=spec.target,
            effect=caps.effect.value,
            at_ns=now_ns,
            send_by_ns=now_ns + round(departure.SEND_BY_S * 1e9),
            not_after_ns=self.not_after_ns,
            cost=caps.cost,
        )

    def _call(self, attempt: int, prepared: bytes = b"", first_sent_ns: int = 0) -> Call:
        from evsrc.core.codec import plain

        state = self.call
        if state is not None and state.attempts:
            first_sent_ns = state.attempts[0].at_ns
            known = state.attempt(attempt)
            prepared = prepared or (known.prepared if known is not None else b"")
        return Call(
            key=self.spec.key,
            marker=keys.marker(self.services.log.namespace, self.spec.key),
            attempt=attempt,
            run_id=self.journal.run_id,
            call_id=self.spec.call,
            scope=self.spec.scope,
            label=self.spec.label,
            instance=self.tool.instance,
            prepared=plain(prepared) if prepared else None,
            first_sent_ns=first_sent_ns,
            secrets=Secrets(self.services.secrets),
        )

    async def _prior(
        self, action: decide.RecordIntent, bound: Bound
    ) -> tuple[bytes, ErrorData | None]:
        """What is known before the send: prepared anew, or as the first attempt found it."""
        state = self.call
        if action.same_prior and state is not None:
            return state.attempts[0].prepared, None
        prepared: tuple[bytes, ErrorData | None] = (b"", None)
        with anyio.CancelScope() as self._preparing:
            prepared = await self._prepare(self._call(action.attempt), bound)
        return prepared

    async def _prepare(self, call: Call, bound: Bound) -> tuple[bytes, ErrorData | None]:
        """What `prepare` returned, as bytes; or why it failed, and then nothing is sent."""
        if not self.tool.can_prepare:
            return b"", None
        try:
            with anyio.fail_after(self.tool.capabilities.timeout_s):
                value = await self.tool.prepare(call, bound.arguments, self.services.threads)
            return round_trip(value, Any)[0], None
        except Exception as error:  # noqa: BLE001  a tool's failure is recorded, whatever it is
            text = call.redact(f"prepare failed: {type(error).__name__}: {error}")
            return b"", ErrorData("NotSent", text[:500])

    async def _send(self, call: Call, bound: Bound) -> reports.SendReport:
        """Send once. Everything that is not a clear answer is a doubt."""
        self._in_flight = True
        scope = self._sending = anyio.CancelScope()
        report: reports.SendReport = reports.Doubt("cancelled")
        try:
            with scope:
                report = await self._send_timed(call, bound)
        finally:
            self._in_flight, self._sending = False, None
        self._moment("answered", call.attempt, type(report).__name__)
        return report

    async def _send_timed(self, call: Call, bound: Bound) -> reports.SendReport:
        with anyio.move_on_after(self.tool.capabilities.timeout_s):
            try:
                value = await self.tool.send(call, bound.arguments, self.services.threads)
            except NotSent as error:
                return reports.NoByteLeft(error_data(error, call))
            except Throttled as error:
                return reports.NoByteLeft(error_data(error, call), error.retry_after_s)
            except Rejected as error:
                return reports.RefusedByTool(error_data(error, call))
            except AlreadyThere as error:
                return reports.Doubt("already-there", error_data(error, call))
            except Exception as error:  # noqa: BLE001  anything unclassified is unknown, and recorded
                return reports.Doubt("error", error_data(error, call))
            except anyio.get_cancelled_exc_class() as error:
                if anyio.current_effective_deadline() == -math.inf:
                    raise  # our own scope was cancelled
                # The tool awaited something that somebody else cancelled: that is the tool's error.
                return reports.Doubt("error", error_data(error, call))
            return answered(value, self.tool.return_annotation)
        return reports.Doubt("timeout")

    # ---- looking --------------------------------------------------------------------------------

    async def _probe(self, attempt: int) -> None:
        waited_s = self.services.clock.monotonic() - self._doubt_began
        verdict = await self._look_once(attempt)
        self._looks += 1
        self._look = Look(self._encoded(verdict), waited_s)

    async def _look_once(self, attempt: int) -> AnyVerdict:
        call = self._call(attempt)
        try:
            arguments = self._arguments(self.call)
            with anyio.move_on_after(PROBE_TIMEOUT_S):
                verdict = await self.tool.probe(call, arguments, self.services.threads)
                return redacted(verdict, call)
            return Undetermined(f"no answer within {PROBE_TIMEOUT_S:g} s")
        except Exception as error:  # noqa: BLE001  a look that fails tells nothing; it is tried again
            return Undetermined(call.redact(f"{type(error).__name__}: {error}")[:500])

    def _arguments(self, state: CallState | None) -> dict[str, Any]:
        if self.bound is not None:
            return self.bound.arguments
        if state is None:
            raise AssertionError("nothing to look for")
        return self.tool.unbind(state.open_attempts[-1].sent)

    def _encoded(self, verdict: AnyVerdict) -> AnyVerdict:
        if not isinstance(verdict, Happened):
            return verdict
        found = answered(verdict.value, self.tool.return_annotation)
        texts = [text for text in (found.why, verdict.evidence) if text]
        return Happened(found.value, verdict.whose, verdict.gone, "; ".join(texts))
