"""A local world without a cluster: a Kubernetes API, a Model Registry, a played KServe, a broker, fault switches."""
