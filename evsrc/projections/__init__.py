"""The read side: views derived from the log by folding it, rebuilt at will, never a source of truth."""
