"""The rack: real systemd hosts on one Linux machine, for tests that pull power cords."""
