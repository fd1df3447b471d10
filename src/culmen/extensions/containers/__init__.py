"""Containers of podman and docker: a level of the jail, and evaluators that are images."""
