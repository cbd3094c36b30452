"""Scenarios of clusters by their numbers, as conversations of nodes in memory: `conversations/NN_name.txt`.

Those marked R are repeated with real brokers and foreign clients, Qpid Proton at one node and Qpid JMS at another, by
the tests of the same numbers in tests/foreign/test_cluster_scenarios.py. Numbers have gaps.

 1 R a node's own announcements make no entry        19 R the end of a chain is too far away for max-hops
 2 R entries accumulate, each is told of once        21   five nodes, equal shares, also after restarts
 3   each network card                               23   no internal header reaches a client
 4   another port, address or group                  24   answers reach temporary queues of other nodes
 5   who stops hearing, and starts again             26   whatever form the messages have
 6   announcements without a backup                  27   large messages leave no file behind
 8   every start and stop is seen, clusters apart    28 R redistribution stops when a consumer comes here
 9 R lists of addresses                              29 R a consumer is back within the delay
10   bindings by address                             30 R STRICT moves nothing
11 R OFF                                             31 R messages move to where a selector matches
12 R topics and queues of one name with OFF          33 R OFF_WITH_REDISTRIBUTION
13 R STRICT                                          35 R groups stay
15 R the target stops and starts                     36 R scheduled messages, and those to be delivered again
16   each queue has a cursor                         38   the target pages, large messages
17   addresses that do not match                     39   messages that no selector here matches
                                                    41   groups go to one node, the arbiter fails, groups end

Those of a node that leaves have no conversation. Foreign clients show them alone, by the tests of the same numbers in
tests/foreign/test_scale_down.py.

42 L two queues of one address                      47 L queues with selectors
43 L queues that are not there                      48 L the node comes back
45 L properties of messages, large bodies           50 L who is forgotten leaves nothing behind
46 L what is paged                                  51 L few or all messages without an answer

What they cannot show in memory is shown elsewhere as well: 3 to 5 on cards of network namespaces in
tests/system/broker/test_discovery.py, 23 to 27 with other clients in tests/foreign/test_cluster.py.
"""
