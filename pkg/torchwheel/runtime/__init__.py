"""The run-time half: loads an extension prebuilt, builds it just in time, or falls back."""
