"""The shells of the client: asyncio, and a blocking one on top of it."""
