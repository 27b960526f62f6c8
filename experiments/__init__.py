"""The paper's tables on real text: grids of runs, a runner with a time budget, one JSON row a run, tables from the rows."""
