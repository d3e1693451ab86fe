"""The native protocol: typed messages, binary audio frames and resumable sessions."""
