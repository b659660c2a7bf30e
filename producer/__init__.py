"""Watches KServe objects in the cluster and publishes every relevant change to JetStream."""
