"""The world: event loop, sockets, disk and hashing threads, admin socket, service manager. All waiting happens here.

Everything below is pure and sees the world as inputs and effects (node/values/inputs.py, node/values/effects.py); the
simulator puts itself in the place of this room and of nothing else.
"""
