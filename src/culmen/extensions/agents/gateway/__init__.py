"""Local gateway between coding agents and their provider: counts, limits and records.

    async with Metering({"*": model}, folder) as gateway:
        token = gateway.open(agent="3", budget=Budget(dollars=2.0))
        env = gateway.env(token, "anthropic")   # the agent's variables: the token, never the key
        ...                                     # run the agent
        spent = gateway.usage(token)            # cumulative; gateway.take(token): the increment
        gateway.close(token)                    # the stop switch

`Metering` is in `metering`, its limits (`GatewayLimits`) in `account`. See docs/metering.md.
"""
