"""The structures, each in a folder with its declaration, plan, statements, SQL view and checks."""
