"""The paper's tables on real text: grids of runs, a runner with a time budget, rows, and tables made from the rows."""
