"""The SQLite exports of Nsight Systems."""
