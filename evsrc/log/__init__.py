"""Where events live: one contract, several backends. Opaque bodies in streams; no domain word here."""
