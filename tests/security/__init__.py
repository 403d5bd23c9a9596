"""The threat table of docs/security.md, a test a row at least; each has a canary that an attack would touch."""
