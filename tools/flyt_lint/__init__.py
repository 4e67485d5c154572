"""The rules that tools/lint.py enforces; STYLE.md marks them with (*)."""
