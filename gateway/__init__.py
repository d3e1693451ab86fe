"""The edge process: app, routes, settings, command line, metrics, auth, web page and wire dialects."""

import os

# Before numpy loads: our matrix products are small, and a thread pool per product costs more than it gives.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
