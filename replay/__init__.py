"""The event stream as a debugger: capture files, and what can be found out from them without a cluster.

capture.py   the lines of a capture file, as values                                        (core)
files.py     reading and writing them: plain, gzip, zstd; a cut tail is noticed
"""
