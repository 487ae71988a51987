"""Signal handling of the fork server from which voters are forked: preloaded first there, imported nowhere else.

A signal to the whole process group is meant for the voters. A fork server that died of it would make the supervisor
believe that the voters have ended while they still write, so here the signals are only noted. A voter just forked,
which has no handlers of its own yet, inherits these.
"""

from capibara_assets.processes.fork_servers import set_up_fork_server
from capibara_assets.training.supervisor.signals import stop_signal

set_up_fork_server()
stop_signal.listen()
