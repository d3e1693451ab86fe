"""The Wyoming protocol, by which Home Assistant has texts spoken: a TCP server of its own, off by default.

Nobody is asked who they are: the protocol has no place for a key (protocols.md 1.7). Whoever reaches the
port speaks for the tenant that ``VOXWIRE_WYOMING_TENANT`` names, with its voices. It therefore listens on
this machine alone, unless ``VOXWIRE_WYOMING`` names another address and ``VOXWIRE_WYOMING_OPEN`` says that
this is meant.

- ``wire``: events to bytes and back, limits before parsing. Without I/O.
- ``session``: what one connection asks for, spoken in order.
- ``server``: connections, deadlines, drain.
"""
