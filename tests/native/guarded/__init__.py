"""Native kernels between unmapped pages."""
