"""A small project of Django's, whose tests run once per engine, each in a process: settings are configured once."""
