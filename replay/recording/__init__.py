"""Where captures come from: the event stream, a cluster, a file of watch events: `isvc-sync record`."""
