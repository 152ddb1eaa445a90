"""Scripts that write documents, or parts of them."""
