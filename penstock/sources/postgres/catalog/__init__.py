"""What the database says of its tables, and what becomes of it in records."""
