"""Pass rates of the answers: extracting code, running it confined, comparing with the reference."""
