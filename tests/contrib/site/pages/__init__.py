"""The one application of the project."""
