"""SQLite files: opened, migrated, and set aside if damaged."""
