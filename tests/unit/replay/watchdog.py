"""What ends a Python process with exit code 99 as soon as it asks for a socket; for the beginning of its code."""

WATCHDOG = """
import sys
def watch(event, arguments):
    if event.startswith("socket."):
        print("a socket", event, file=sys.stderr, flush=True)
        import os
        os._exit(99)
sys.addaudithook(watch)
"""
