"""The pure core: no I/O, no clock, no randomness, no event loop. All of these enter as data."""
