"""The fork server from which lanes are forked: preloaded first there, imported nowhere else.

A signal to the run's process group is meant for the run alone, which then interrupts each lane once: a fork server that
died of it would make the run believe that all lanes have ended.
"""

import os

from capibara_assets.processes.fork_servers import set_up_fork_server

set_up_fork_server()
os.setpgid(0, 0)
