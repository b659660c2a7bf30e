"""The event stream as a debugger: capture files, and what can be found out from them without a cluster.

capture, files        the lines of a capture file, as values; reading and writing them, a cut tail is noticed
planning, steps       every event decided again by the consumer's own handler; what came of it
registry, surroundings, noting, instant, bareloop
                      what the handler meets there: a registry, a cluster and a broker in memory, and no clock
plan_text, differences
                      a plan as text, and where two of them part
recording/            where captures come from: the stream, a cluster, a file of watch events
upkeep/               what is done to a file as such: redacted, made anonymous, validated, counted
life/                 the life of one object, and why it is not in the registry
timeline/             a capture as one page for a browser
target/, pacing       a capture played to real parts, at its own pace or another
exploring/
                      a capture in a thousand orders, with crashes and errors; the few lines that matter
"""
