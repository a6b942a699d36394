"""Structures, a folder each: the declaration, its plan and statements, its SQL view, its checks."""
