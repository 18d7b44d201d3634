"""The journal of jobs, and what finished work looks like in it."""
