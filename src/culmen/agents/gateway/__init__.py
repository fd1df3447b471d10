"""Local gateway between coding agents and their provider: counts, limits and records.

    async with Metering({"*": model}, folder) as gateway:
        token = gateway.open(agent="3", budget=Budget(dollars=2.0))
        env = gateway.env(token, "anthropic")        # what the agent is started with: the token,
        never the key
        ...                                          # run the agent
        spent = gateway.usage(token)                 # cumulative; gateway.take(token) gives the
        increment
        gateway.close(token)                         # the stop switch

`Metering` is in `metering`, the bounds it keeps (`GatewayLimits`) in `account`. See
docs/metering.md.
"""
