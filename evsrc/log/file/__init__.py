"""The file log, format 1: append-only, checksummed, chained; one writer, any number of readers."""
