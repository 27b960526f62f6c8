"""The networks that search runs: the reference, int8 on a CPU, recorded graphs on a GPU, behind one interface."""
