"""The paper's figures: one function a figure, measures or a record in, Axes out. Matplotlib lives here and nowhere else."""
