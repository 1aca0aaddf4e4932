"""The arguments of handlers, and the services of the engine behind them."""
