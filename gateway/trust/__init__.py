"""Trust: consent that was spoken, whether two recordings are of one person, and marks."""
