"""Models, draft models and tokenizers: where they come from, how they are loaded, what is kept of them on disk."""
