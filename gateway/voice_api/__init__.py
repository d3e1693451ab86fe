"""Voices over HTTP: consents, enrolment, deletion and its receipts."""
