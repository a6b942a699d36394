"""What is stored: the catalog and its private tables; making, changing, checking and dropping structures."""
