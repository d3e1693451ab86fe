"""What engines share that speak in worker processes, one request at a time each.

An engine of this kind has a network that is best run on one core, so there are as many workers as cores.

- ``wire``: what engine and workers say to each other; how a worker is told what to load is each engine's own.
- ``worker``: the worker's loop.
- ``engine``: requests spread over the workers, cancelled, run again, and what is measured.
- ``limiter``: level and soft limit of what was made.
"""
