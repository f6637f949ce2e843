"""Compiled loops that release the GIL. Imported inside functions, so that importing the package stays fast."""
