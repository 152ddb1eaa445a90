"""The dynamic layout resolver: partial evaluation, Transform insertion, the soundness check."""
