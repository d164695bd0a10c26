"""Compression: what a file is by its content, reading every form that exists, writing three.

`detect` tells plain, gzip and zlib apart, `inflate` reads them, `deflate` writes them (gzip as seekable
gzip), `tensorflow` says where TensorFlow would stop reading without a word.
"""
