"""Messages of the event stream on their way to the handler: pulled, queued one at a time for each object, buried."""
