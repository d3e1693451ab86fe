"""The edge process: app, routes, settings, command line, metrics, auth, web page and wire dialects."""
