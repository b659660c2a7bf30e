"""The sweep: all records compared with all objects, now and then, and looks asked for where they differ."""
