"""Datasets, where their files come from, and how an item becomes a prompt."""
