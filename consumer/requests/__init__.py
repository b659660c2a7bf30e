"""Requests over HTTP: bounded in time, size and number, held back from who is away; and what the answers mean."""
