"""Run: what user code holds. Calls with effects, reads that are recorded once, and maps over items.

Rule: every method first names what is asked (scope, tool, label or number), then replays what is
recorded, and only then works live. What user code can branch on is in the log before it gets it.
Does not know: how a call is settled (driver.py) or when the code is thrown away (execution.py).
"""

import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from typing import Any, ParamSpec, TypeVar, overload

import anyio
import anyio.to_thread
import msgspec

from evsrc.core import canonical, decide, keys
from evsrc.core.codec import plain, round_trip
from evsrc.core.events import Scope, StepRecorded
from evsrc.core.verdicts import Effect
from evsrc.errors import (
    AmbiguousCall,
    CallerError,
    DefinitionError,
    KeyReuseError,
    LimitExceeded,
    StepFailed,
    UnusableValue,
)
from evsrc.runtime.delivering import check_read, deliver, deliver_read, differing
from evsrc.runtime.driver import CallSpec, Driver
from evsrc.runtime.execution import Execution
from evsrc.runtime.recording import error_data
from evsrc.runtime.signature import Signature, signature_of
from evsrc.runtime.unit import (
    Claim,
    Place,
    Slot,
    Unit,
    check_label,
    current_asyncio_task,
    current_place,
)
from evsrc.tools.binding import Bound
from evsrc.tools.bound import BoundTool
from evsrc.tools.call import Call, Secrets
from evsrc.tools.tool import Tool

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

OWN_KEY_SCOPE: Scope = ("own key",)
"""Where calls under a caller's own key have their identity: no node or map can be called this."""

MAP_ITEMS_MAX = 10_000
"""Items of one `run.map`: each is a scope with calls of its own; more belong into several runs."""


class Options(msgspec.Struct, frozen=True):
    """Options of the next call, made by `run.options(...)`."""

    label: str = ""
    durable: bool = False
    key: str = ""
    not_after_s: float | None = None


class Run:
    """One run, as its code sees it. Valid while that code runs."""

    def __init__(self, execution: Execution, options: Options | None = None) -> None:
        self._execution = execution
        self._options = options or Options()

    @property
    def id(self) -> str:
        """The run's id."""
        return self._execution.run_id

    def options(
        self,
        *,
        label: str = "",
        durable: bool = False,
        key: str = "",
        not_after_s: float | None = None,
    ) -> "Run":
        """The same run with options for the calls made through it.

        Args:
            label: names the call instead of its number; once per tool and scope.
            durable: a step returns only when its value is synced (an expensive model call).
            key: the caller's own idempotency key, one for all runs of the log; with other arguments
                it is refused. Where another run acted under it, the tool is asked before it is sent.
            not_after_s: seconds from now after which the call is too old to be sent.

        Raises:
            LimitExceeded: label or key is over 200 bytes.
        """
        check_label(label)
        check_label(key)
        return Run(self._execution, Options(label, durable, key, not_after_s))

    # ---- effects --------------------------------------------------------------------------------

    async def call(self, tool: Tool[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a tool under a recorded intent and return its result as recorded.

        An unknown outcome is settled by asking the tool; an open question neither returns nor raises:
        the task waits. Cancelling the caller stops the send and records both.

        Raises:
            Rejected: the tool refused; nothing happened.
            NotSent: no attempt was sent, and the attempts are used up.
            StaleIntent: the call was older than its `not_after_s` and was not sent.
            OutcomeSkipped: a policy or a person skipped the unknown outcome.
            ResultUnusable: the effect happened; its result cannot be recorded.
            DivergenceError: the run recorded this call with other arguments; nothing was sent.
            AmbiguousCall: it could not be told apart from another one on replay; nothing was sent.
            KeyReuseError: a label or an own key is used again for something else.
            RunStopped: the run's code was stopped.
        """
        return await self._guarded(self._call(tool.bound, args, kwargs))

    async def _guarded(self, work: Awaitable[T]) -> T:
        """Remember a misuse, so that a broad `except` in user code cannot turn it into success."""
        try:
            return await work
        except (UnusableValue, LimitExceeded):
            raise  # a bad value is an ordinary failure of this code
        except CallerError as error:
            self._execution.block(error)
            raise

    async def _call(self, tool: BoundTool, args: tuple[Any, ...], kwargs: Any) -> Any:
        place, bound = self._place(), tool.bind(args, kwargs)
        if tool.capabilities.effect is Effect.READ:
            return await self._read_tool(place, tool, bound)
        own = self._options.key
        label = own or self._options.label
        name = f"{tool.name}@{tool.instance}" if tool.instance else tool.name
        ordinal, claim = (0, None) if own else place.unit.claim(place.scope, name, label)
        if own:
            place.unit.check()
        spec = self._spec(tool, bound, place.scope, label, ordinal)
        try:
            return await self._settled(place.unit, tool, bound, spec)
        finally:
            driver = self._execution.services.drivers.get((self.id, spec.call))
            if claim is not None:
                if driver is None:
                    claim.release()
                else:  # the caller left; the call is still being settled: the name stays taken
                    self._execution.services.group.start_soon(_release_after, driver, claim)

    def _spec(
        self, tool: BoundTool, bound: Bound, scope: Scope, label: str, ordinal: int
    ) -> CallSpec:
        services, own = self._execution.services, self._options.key
        key = (
            keys.own_key(services.log.namespace, tool.name, tool.instance, own)
            if own
            else keys.idempotency_key(
                namespace=services.log.namespace,
                run_id=self.id,
                scope=scope,
                tool=tool.name,
                instance=tool.instance,
                label=label,
                ordinal=ordinal,
                arguments=bound.identity,
            )
        )
        identity = OWN_KEY_SCOPE if own else scope
        return CallSpec(
            call=keys.call_id(self.id, identity, tool.name, tool.instance, label, ordinal),
            key=key,
            scope=scope,
            label=label,
            ordinal=ordinal,
            own_key=own,
            asked=bound.asked,
            asked_digest=keys.bytes_digest(bound.identity),
            target=bound.target,
        )

    async def _settled(self, unit: Unit, tool: BoundTool, bound: Bound, spec: CallSpec) -> Any:
        state = self._execution.journal.state
        call = state.calls.get(spec.call)
        self._check_in_flight(spec)
        recorded = decide.check_identity(
            call, spec.asked_digest, spec.own_key, differing(call, bound)
        )
        queued = unit.queue.asked(spec.call)
        if queued is not None:
            await self._execution.turn(unit, spec.call)
            if queued.kind == "abandoned":
                return await self._execution.replay_give_up(unit, queued)
            unit.queue.handed_out(spec.call)
        done = recorded and call is not None and call.outcome is not None
        # Where nothing happened under the recorded arguments, new ones are a call of their own; and an
        # own key that was used before gives what is stored, wherever in the run it is used again.
        if not (done and (queued is not None or spec.own_key)):
            await self._execution.turn_live(unit, spec.call, spec.scope, tool.name)
            self._check_in_flight(spec)  # again: another caller of an own key may have come first
            driver = self._drive(tool, bound, spec)
            await self._execution.wait_for(unit, driver, spec.scope)
            if driver.error is not None:
                raise driver.error
        return deliver(tool, state.calls[spec.call])

    def _check_in_flight(self, spec: CallSpec) -> None:
        services = self._execution.services
        driver = services.drivers.get((self.id, spec.call))
        if not spec.own_key:
            return
        if driver is not None:
            fields = canonical.differing(plain(driver.spec.asked), plain(spec.asked))
            where = f"is in flight (call {spec.call})"
            decide.check_own_key(
                spec.own_key, driver.spec.asked_digest, spec.asked_digest, where, fields
            )
        used = services.own_keys.get(spec.key)
        if used is not None and used.run_id != self.id:
            where = f"was used in run {used.run_id!r}"
            decide.check_own_key(spec.own_key, used.asked_digest, spec.asked_digest, where)

    def _drive(self, tool: BoundTool, bound: Bound, spec: CallSpec) -> Driver:
        services = self._execution.services
        not_after = self._options.not_after_s
        not_after_ns = (
            None if not_after is None else services.clock.now_ns() + round(not_after * 1e9)
        )
        driver = services.drivers.get((self.id, spec.call))
        if driver is not None:
            driver.attach(spec, bound, not_after_ns)
            return driver
        driver = Driver(
            services, self._execution.journal, tool, spec, bound, not_after_ns=not_after_ns
        )
        services.drivers[self.id, spec.call] = driver
        services.group.start_soon(driver.run)
        return driver

    # ---- reads ----------------------------------------------------------------------------------

    @overload
    async def step(
        self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def step(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def step(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a read (a query, a model call) once and replay its value, or its error, ever after.

        `fn` is async, or blocking and then run in a worker thread; its return annotation is required
        (`-> Any` for plain data). No intent, no sync of its own: `options(durable=True)` waits for one.

        Raises:
            StepFailed: `fn` raised; the same error on every replay.
            UnusableValue: the value would not survive encoding with its type.
            DefinitionError: `fn` has no return annotation.
            DivergenceError: the run recorded this step with other arguments.
            AmbiguousCall, KeyReuseError, RunStopped: as `call`.
        """
        signature = signature_of(fn)

        async def work() -> Any:
            if signature.blocking:
                from functools import partial

                return await anyio.to_thread.run_sync(
                    partial(fn, *args, **kwargs), limiter=self._execution.services.threads
                )
            return await fn(*args, **kwargs)

        arguments = signature.bind(args, kwargs)
        digest = keys.bytes_digest(canonical.canonical(arguments))
        return await self._guarded(self._read(self._place(), signature, digest, work, cost=0.0))

    async def _read_tool(self, place: Place, tool: BoundTool, bound: Bound) -> Any:
        name = f"{tool.name}@{tool.instance}" if tool.instance else tool.name
        signature = Signature(name, tool.return_annotation, tool.blocking)

        async def work() -> Any:
            call = Call(
                key="",
                marker="",
                run_id=self.id,
                scope=place.scope,
                label=self._options.label,
                instance=tool.instance,
                secrets=Secrets(self._execution.services.secrets),
            )
            services = self._execution.services
            try:
                async with services.limiter(tool) or nullcontext():
                    with anyio.fail_after(tool.capabilities.timeout_s):
                        return await tool.send(call, bound.arguments, services.threads)
            except CallerError:
                raise
            except Exception as error:  # noqa: BLE001  recorded by `_observe`, without the call's secrets
                data = error_data(error, call)
                raise StepFailed(data.type, data.message, data.transient) from None

        digest = keys.bytes_digest(bound.identity)
        return await self._read(place, signature, digest, work, cost=tool.capabilities.cost)

    async def _read(
        self,
        place: Place,
        signature: Signature,
        digest: str,
        work: Callable[[], Awaitable[Any]],
        cost: float,
    ) -> Any:
        unit, label = place.unit, self._options.label
        ordinal, claim = unit.claim(place.scope, signature.name, label)
        try:
            id_ = keys.step_id(self.id, place.scope, signature.name, label, ordinal)
            known = self._execution.journal.state.reads.get(id_)
            if known is not None:
                check_read(known, digest)
            queued = unit.queue.asked(id_)
            if queued is not None:
                await self._execution.turn(unit, id_)
                if queued.kind == "abandoned":
                    return await self._execution.replay_give_up(unit, queued)
                unit.queue.handed_out(id_)
                return deliver_read(signature, self._execution.journal.state.reads[id_].event)
            blank = StepRecorded(place.scope, signature.name, digest, label, ordinal, cost=cost)
            return await self._live_read(unit, id_, signature, blank, work)
        finally:
            claim.release()

    async def _live_read(
        self,
        unit: Unit,
        id_: str,
        signature: Signature,
        blank: StepRecorded,
        work: Callable[[], Awaitable[Any]],
    ) -> Any:
        began = self._execution.services.clock.monotonic()
        unit.live += 1
        try:
            await self._execution.live(unit)
            unit.check()
            event = await self._observe(signature, blank, work)
            unit.check()
            self._execution.journal.expect(id_, unit.queue)
            await self._execution.journal.append([event], durable=self._options.durable)
            await self._execution.turn(unit, id_)
            unit.queue.handed_out(id_)
        except anyio.get_cancelled_exc_class():
            if not self._execution.stopped:
                waited_s = self._execution.services.clock.monotonic() - began
                await self._read_given_up(id_, blank, waited_s)
            raise
        finally:
            self._execution.journal.unexpect(id_, unit.queue)
            unit.live -= 1
            unit.pulse()
        return deliver_read(signature, event)

    async def _read_given_up(self, id_: str, blank: StepRecorded, waited_s: float) -> None:
        """Record that the caller of a read was cancelled, before its code goes on. Shielded."""
        if (
            id_ in self._execution.journal.state.reads
        ):  # the value landed, the caller does not see it
            await self._execution.record_give_up(id_, blank.scope, blank.name, waited_s)
            return
        given_up = msgspec.structs.replace(blank, abandoned=True, waited_s=waited_s)
        with anyio.CancelScope(shield=True):
            await self._execution.journal.append([given_up], durable=False)

    async def _observe(
        self, signature: Signature, blank: StepRecorded, work: Callable[[], Awaitable[Any]]
    ) -> StepRecorded:
        replace = msgspec.structs.replace
        try:
            value = await work()
        except CallerError:
            raise
        except Exception as error:  # noqa: BLE001  a read's failure is recorded, whatever it is
            return replace(blank, error=error_data(error))
        except anyio.get_cancelled_exc_class() as error:
            if anyio.current_effective_deadline() == -math.inf or being_cancelled():
                raise
            return replace(blank, error=error_data(error))
        return replace(blank, value=round_trip(value, signature.returns)[0])

    # ---- many at once ---------------------------------------------------------------------------

    async def map(
        self,
        fn: Callable[[T], Awaitable[R]],
        items: Iterable[T],
        /,
        *,
        key: Callable[[T], str],
        at_once: int = 8,
    ) -> list[R]:
        """Run `fn` for every item, at most `at_once` at a time; results in the order of the items.

        Each item is a scope of its own, named by its key. All items end before this returns or raises.

        Raises:
            KeyReuseError: two items have one key, or the label named another map of this scope.
            AmbiguousCall: another unlabelled map of this scope is under way.
            LimitExceeded: more than 10,000 items, or a key over 200 bytes.
            Exception: the first failing item's error, in the order of the items.
        """
        place = self._place()
        todo = list(items)
        if len(todo) > MAP_ITEMS_MAX:
            raise LimitExceeded(f"run.map of {len(todo)} items, at most {MAP_ITEMS_MAX}")
        names = item_keys([key(item) for item in todo], "run.map")
        ordinal, claim = self._claim_map(place)
        label = self._options.label
        outer = (*place.scope, f"map:{label}" if label else f"map#{ordinal}")
        results: dict[int, R] = {}
        failures: dict[int, Exception] = {}
        limiter = anyio.CapacityLimiter(at_once)
        slots = [Slot(limiter) for _ in todo]
        places = [
            Place(place.unit, (*outer, f"item:{name}"), (*place.slots, slot))
            for name, slot in zip(names, slots, strict=True)
        ]

        async def one(index: int) -> None:
            slot = slots[index]
            current_place.set(places[index])
            await slot.take()
            try:
                results[index] = await fn(todo[index])
            except Exception as error:  # noqa: BLE001  siblings finish; raised below, in item order
                failures[index] = error
            finally:
                slot.give()

        try:
            async with anyio.create_task_group() as group:
                for index in range(len(todo)):
                    group.start_soon(one, index)
        finally:
            claim.release()
        if failures:
            raise failures[min(failures)]
        return [results[index] for index in range(len(todo))]

    def _claim_map(self, place: Place) -> tuple[int, Claim]:
        try:
            # With a colon, which no name of a tool has that could be counted with it.
            return place.unit.claim(place.scope, "run.map:", self._options.label)
        except (AmbiguousCall, KeyReuseError) as error:
            self._execution.block(error)
            raise

    def _place(self) -> Place:
        place = current_place.get()
        if place is None or place.unit.execution is not self._execution:
            raise DefinitionError(
                f"run {self.id!r} is used outside its own code: call it in the node or workflow "
                "that was given it"
            )
        return place


def item_keys(names: list[str], where: str) -> list[str]:
    """The keys of items, checked. Raises KeyReuseError for a key that occurs twice."""
    seen: set[str] = set()
    for name in names:
        check_label(name)
        if name in seen:
            raise KeyReuseError(f"{where}: two items have the key {name!r}; keys name items")
        seen.add(name)
    return names


async def _release_after(driver: Driver, claim: Claim) -> None:
    await driver.ended.wait()
    claim.release()


def being_cancelled() -> bool:
    """Was this task cancelled from outside (asyncio's own cancel), not what it awaited?"""
    task = current_asyncio_task()
    return task is not None and task.cancelling() > 0
