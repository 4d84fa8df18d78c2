"""Traces: what agents did, call by call, from whatever log it stands in, and the trials that follow from it."""
