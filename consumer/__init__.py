"""Takes the events, brings Model Registry into agreement with them, and writes record ids back."""
