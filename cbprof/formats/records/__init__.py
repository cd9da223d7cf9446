"""What have profilers in common that keep tables of records: rows, who is who in them, and SQLite?"""
