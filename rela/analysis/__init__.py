"""What attention does (section 5.2 of the paper), measured on one record of its weights."""
