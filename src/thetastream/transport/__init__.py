"""Sites: tuples kept beside a remote source, numbered, and served over Arrow Flight."""
