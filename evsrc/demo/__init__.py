"""The demo: forty findings, a simulated world without any idempotency, and an enrichment workflow.

Rule: uses public names of evsrc only; travels in the wheel, so that the promise can be watched
after a plain install. Nothing is imported here: each module is imported by who needs it.
Does not know: how evsrc works inside.
"""
