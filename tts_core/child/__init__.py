"""A worker process behind a socket: started, spoken to in messages, and never left behind.

An owner (an engine in the gateway) has processes of its own for what would block its event loop or needs a
core for itself. Both ends are ours and of the same build.

- ``frames``: the language: MessagePack messages, each with raw bytes beside it, over one byte stream.
- ``failure``: how an error of the worker becomes one of the owner.
- ``pipe``: an end of the socket on an event loop.
- ``program``: what to start, in which environment.
- ``link``: the process as its owner sees it.
- ``serve``: the worker's side, and what ends a worker with its owner.

A user of this package writes its messages (``msgspec.Struct``, each with its own tag) and their ``Language``,
a ``Program`` for the worker, and in the worker's module a ``main(fd)`` that calls ``serve.serve``.
"""
