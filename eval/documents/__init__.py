"""Parts of the documents that scripts write."""
