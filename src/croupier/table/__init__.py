"""Offset tables: how many records files have and where each stands, for files as they are.

`packed` holds lengths in few bits, `model` is a table in memory, `build` makes one from files (`seekable`
from gzip in fragments), `format` is what it looks like on disk, and `keep` knows where tables are kept and
when they are still right.
"""
