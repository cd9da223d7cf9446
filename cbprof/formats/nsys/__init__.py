"""What do the tables of an SQLite export of Nsight Systems mean?"""
