"""Starting runs as a whole: whatever is asked in whatever order, one id is one run."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from evsrc.core import runs
from evsrc.core.events import ErrorData, RunCompleted, RunFailed, RunReopened, RunStarted
from evsrc.core.state import RunState, evolve
from evsrc.errors import InputMismatch
from evsrc.testing.specification import RUN

STARTS = st.builds(
    RunStarted,
    st.sampled_from(["enrich", "contain"]),
    st.sampled_from(["1", "2"]),
    st.just(b""),
    st.sampled_from(["d1", "d2"]),
    st.sampled_from(["i1", "i2"]),
)
ENDS = st.sampled_from([RunCompleted(), RunFailed(ErrorData("E", "x")), RunReopened("ada")])


@given(st.lists(STARTS | ENDS, max_size=12))
def test_one_id_is_one_workflow_and_one_input(asked: list[msgspec.Struct]) -> None:
    """The first start stands; an equal one joins, before and after the end; any other is refused."""
    state = RunState(RUN)
    first: RunStarted | None = None
    for event in asked:
        if not isinstance(event, RunStarted):
            evolve(state, event)  # type: ignore[arg-type]
            continue
        try:
            appended = runs.start(state, event)
        except InputMismatch:
            assert first is not None
            assert (event.workflow, event.input_digest) != (first.workflow, first.input_digest)
            continue
        assert appended == ((event,) if first is None else ())
        for one in appended:
            evolve(state, one)
        first = first or event
        assert (event.workflow, event.input_digest) == (first.workflow, first.input_digest)
    assert state.started == first
