"""What lies in a folder of traces, as pages that a server shows to one person on this machine."""
