"""`isvc-sync demo`: the whole pipeline on one machine, as a story with a table and with checks at its end."""
