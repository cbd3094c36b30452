"""The journal and large messages on disk: their threads, directories and files, and the room there is."""
