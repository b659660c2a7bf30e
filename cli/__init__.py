"""The command isvc-sync."""
