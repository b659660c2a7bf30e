"""What producer and consumer must both agree on, and nothing else."""
