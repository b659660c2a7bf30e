"""Who acts on which shard: leases and members on the broker, the fence before effects, what a killed owner left."""
