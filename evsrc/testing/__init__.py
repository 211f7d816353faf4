"""Public test tools: the crash harness, and the contract suite for logs. Plain asserts, no pytest needed."""
