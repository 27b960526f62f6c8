"""A local web page to look into attention, and the same page as one file that needs no server."""
