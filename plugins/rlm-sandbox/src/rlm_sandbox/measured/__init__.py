"""Measurements of the sandbox: attacks, honest programs, and thousands of both."""
