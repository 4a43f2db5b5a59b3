"""What the sandbox is measured with: attacks, honest programs, and thousands of both."""
