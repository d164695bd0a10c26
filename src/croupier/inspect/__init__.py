"""Looking at data without changing it: what is in a file, and whether it is whole."""
