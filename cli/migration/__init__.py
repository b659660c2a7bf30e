"""`isvc-sync adopt` and `leave`: coming from another controller, and going."""
