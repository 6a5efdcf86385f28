"""A user's script in, the same script run unchanged with code of this package in its process out.

Loaded at the start of every process of such a script: this floor imports next to nothing.
"""
