"""Search methods, one file or one folder a paper; what several of them use is in parts/."""
