"""A capture in a thousand orders, with crashes and errors; the few lines that matter: `explore`, `shrink`."""
