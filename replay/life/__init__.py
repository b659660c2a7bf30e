"""The life of one object on one screen, and why it is not in the registry: `isvc-sync explain`."""
