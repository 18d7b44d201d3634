"""Connections and what goes over them: limits, time limits, messages that wait to be sent."""
