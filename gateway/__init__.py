"""The edge process: app, routes, settings, command line, metrics, auth, web page and wire dialects."""

import os

# Before numpy loads: our matrix products are small, and a thread pool per product costs more than it gives.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__version__ = "0.1.0"
"""The version of the package, as in pyproject.toml; a checkout that runs in place has no metadata to ask."""
