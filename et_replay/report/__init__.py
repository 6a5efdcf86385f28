"""Results in, text and JSON objects out; nothing here prints or opens a file."""
