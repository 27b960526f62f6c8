"""Tables as CSV, and numbers without pictures."""

import csv
import io
import math
import subprocess
import sys

from rela.report.tables import csv_text, without_nan


def test_columns_are_those_of_all_rows():
    rows = [{"model": "a, b", "x": 0.1}, {"model": 'c "d"', "y": 2}]
    found = list(csv.DictReader(io.StringIO(csv_text(rows))))
    assert found == [{"model": "a, b", "x": "0.1", "y": ""}, {"model": 'c "d"', "x": "", "y": "2"}]


def test_json_has_null_for_what_is_no_number():
    assert without_nan({"a": [1.5, math.nan], "b": ({"c": math.inf},)}) == {"a": [1.5, None], "b": [{"c": None}]}


def test_numbers_need_no_matplotlib_and_pictures_no_pyplot():
    numbers = "import sys, rela.report.measure, rela.report.tables; print('matplotlib' in sys.modules)"
    modules = "rela.plots.curves, rela.plots.heads, rela.plots.layers, rela.plots.noise, rela.report.write"
    pictures = f"import {modules}; print('matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", f"{numbers}; {pictures}"], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["False", "True False"]
