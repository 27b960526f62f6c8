"""The paper's figures: one function a figure, measures or a record in, Axes out. Only here is matplotlib imported."""
