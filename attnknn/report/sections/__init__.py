"""One section of the report a function, by topic."""
