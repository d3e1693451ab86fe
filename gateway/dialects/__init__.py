"""One module per client wire protocol; each maps vendor messages to context verbs and events back."""
