"""Word alignment from cross attention: choose the head, align a corpus."""
