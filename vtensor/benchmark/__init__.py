"""The benchmark: VTensor and its peers run the same model, each in its own process."""
