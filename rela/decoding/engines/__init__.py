"""The networks a search can step through: the reference, int8 on a CPU, recorded graphs on a GPU."""
