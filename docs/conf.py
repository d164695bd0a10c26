"""Sphinx settings."""

from importlib.metadata import version as installed

project = "Croupier"
author = "The Croupier authors"
copyright = "2026, The Croupier authors"  # noqa: A001
version = release = installed("croupier")
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "Croupier"
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
