"""Those that come to listeners: who logs in, opens a connection and asks for links, and what is taken from them."""
