"""How is a file opened: whole or in pieces, gzip or not, cut, or not a trace at all?"""
