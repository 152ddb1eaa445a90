"""The benchmark: VTensor and its peers on the same model, each in a process of its own."""
