"""The figures of the papers, run again: what each claims, what comes out here, and a verdict."""
