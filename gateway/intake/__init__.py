"""Reference recordings on their way in: fetched or uploaded, decoded where nothing can be harmed, judged."""
