"""Parsing and exact comparison of mathematical answers. No text is evaluated as code."""
