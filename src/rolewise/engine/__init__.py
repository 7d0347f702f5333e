"""The in-process engine: answers to many prompts, roles kept, common prefixes computed once."""
