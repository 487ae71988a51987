"""Federated training with clients in other processes, machines or organisations; `deploy/flower` carries the messages.

What is sent is bytes and JSON (`exchange`); `client` trains one round of one client, `server` everything else. Nothing
here knows the network.
"""
