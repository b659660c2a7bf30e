"""What is done to a capture file as such: `redact`, `validate`, `stats`."""
