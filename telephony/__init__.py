"""Signal processing, playout clock and media legs towards listeners."""
