"""`isvc-sync record`, `redact`, `validate`, `stats`: making and keeping capture files."""
