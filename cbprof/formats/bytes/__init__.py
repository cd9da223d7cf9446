"""How are the bytes of a file had: whole or in pieces, inflated, cut?"""
