"""Other tools' numbers on the same weights and prompts."""
