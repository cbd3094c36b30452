"""The world: event loop, sockets, disk and hashing threads, admin socket, service manager. All waiting happens here.

Everything below is pure and sees the world as inputs and effects (node/inputs.py, node/effects.py); the simulator puts
itself in the place of this room and of nothing else.
"""
