"""Counts the datagrams to a multicast group that each network card brings or sends: GROUP SECONDS CARD...

Prints {card: {source address: datagrams}}. Runs under a host's own Python. It looks below the sockets, so who has
joined what makes no difference. Source: packet(7).
"""

import json
import select
import socket
import sys
import time

# What a card sends is shown to those alone who ask for everything.
ETH_P_ALL, ETH_P_IP = 0x0003, 0x0800
SOURCE, DESTINATION = slice(12, 16), slice(16, 20)

group, seconds, cards = socket.inet_aton(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
found = {card: {} for card in cards}
sockets = {}
for card in cards:
    one = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
    one.bind((card, ETH_P_ALL))
    sockets[one] = card
end_s = time.monotonic() + seconds
while (left_s := end_s - time.monotonic()) > 0:
    for one in select.select(list(sockets), [], [], left_s)[0]:
        packet, (_, protocol, *_) = one.recvfrom(65536)
        if protocol == ETH_P_IP and packet[DESTINATION] == group:
            source = socket.inet_ntoa(packet[SOURCE])
            counts = found[sockets[one]]
            counts[source] = counts.get(source, 0) + 1
print(json.dumps(found))
