"""The catalog and its private tables; creating, altering, checking and dropping structures."""
