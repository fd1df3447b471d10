"""Past sessions of coding agents, mined for recurring faults that become cases of a skill."""
