"""A coroutine sleeps without await: no other task of the event loop runs meanwhile."""
import asyncio
import time


async def serve():
    while True:
        await asyncio.sleep(0.1)
        print("served")


async def poll():
    time.sleep(3600)  # await asyncio.sleep(3600) was meant


async def main():
    await asyncio.gather(serve(), poll())


asyncio.run(main())
