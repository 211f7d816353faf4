"""What a log waits for a human to say."""

from evsrc.core.events import QuestionAnswered, QuestionAsked, RunFailed
from evsrc.projections.questions import OpenQuestions
from tests.projections.given import ERROR, SECOND, STARTED, feed, intent

ABOUT_CALL = QuestionAsked("q1", "unknown", "c1", "Did it happen?", attempt=2, evidence="none")
ABOUT_NODE = QuestionAsked("q2", "pinned", "verdict[x]", "Keep?", digest="d")


def test_a_question_is_open_until_an_answer_that_fits() -> None:
    """An answer that does not fit leaves it open."""
    questions = feed(OpenQuestions(), STARTED, intent(), ABOUT_CALL, ABOUT_NODE)
    assert [row.question for row in questions.rows()] == ["q1", "q2"]

    feed(questions, QuestionAnswered("q1", "Ann", "keep", fits=False))
    assert len(questions.rows()) == 2
    feed(questions, QuestionAnswered("q1", "Ann", "absent"))
    assert [row.question for row in questions.rows()] == ["q2"]


def test_a_row_says_what_it_is_about() -> None:
    """Call and tool, or node; kind, text, attempt, and since when."""
    call, node = feed(OpenQuestions(), STARTED, intent(), ABOUT_CALL, ABOUT_NODE).rows()

    assert (call.kind, call.subject, call.tool, call.attempt) == ("unknown", "c1", "page", 2)
    assert (call.text, call.evidence, call.since_ns) == ("Did it happen?", "none", 3 * SECOND)
    assert (node.kind, node.subject, node.tool) == ("pinned", "verdict[x]", "")


def test_an_ended_run_keeps_its_questions() -> None:
    """A terminal event ends the workflow, not its calls."""
    assert len(feed(OpenQuestions(), STARTED, intent(), ABOUT_CALL, RunFailed(ERROR)).rows()) == 1


def test_two_runs_may_ask_the_same_about_a_node() -> None:
    """One id in two runs is two questions: an answer closes its own run's only."""
    questions = feed(OpenQuestions(), ABOUT_NODE, run="r-1")
    feed(questions, ABOUT_NODE, run="r-2")
    assert len(questions.rows()) == 2

    feed(questions, QuestionAnswered("q2", "Ann", "keep"), run="r-1")
    assert [row.run for row in questions.rows()] == ["r-2"]
    assert questions.rows("r-1") == []


def test_asked_again_after_an_answer_it_is_open_again() -> None:
    """The newest asking counts, with its time."""
    answer = QuestionAnswered("q2", "Ann", "keep")
    (row,) = feed(OpenQuestions(), ABOUT_NODE, answer, ABOUT_NODE).rows()

    assert row.since_ns == 3 * SECOND
