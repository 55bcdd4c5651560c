"""One agent per machine: starts attempts as host processes, outlives the daemon, and reports what became
of them.

Nothing is imported here on purpose: the agent process must stay light, and the warden runs without this
package.
"""
