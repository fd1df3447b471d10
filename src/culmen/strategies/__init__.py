"""Search methods, one file or folder per paper."""
