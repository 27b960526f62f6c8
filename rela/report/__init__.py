"""The report: everything of section 5.2 measured, drawn and written as one page."""
