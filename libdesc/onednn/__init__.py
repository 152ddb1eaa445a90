"""oneDNN as a library of VTensor: its description, its handlers, and its native binding."""
