"""Tests of the package that is installed."""

import logging

# In its mode for development, in which these run, the loop reports what takes long.
logging.getLogger("asyncio").setLevel(logging.ERROR)
