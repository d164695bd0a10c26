"""Tables in and out: Parquet, Arrow, CSV and JSON lines from Examples, and Examples from them."""
