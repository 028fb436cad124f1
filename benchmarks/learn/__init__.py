"""What is learnt before a run, on prompts that no run measures: students, priors, acceptance vectors."""
