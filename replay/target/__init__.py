"""Playing a capture to real parts: which, under what guise, and what came of it: `isvc-sync replay --to`."""
