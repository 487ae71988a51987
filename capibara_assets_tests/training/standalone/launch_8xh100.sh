#!/usr/bin/env bash
# Trains the voters of python by the recipe test on h100-8.
#
#   bash launch.sh REQUEST.json
#
# Interrupted or killed, the same command goes on from the last resume points; finished, it does nothing.
# Exit codes: 0 published, 1 too few voters, 2 bad input, 130 and 143 stopped by SIGINT and SIGTERM.
set -euo pipefail

request="${1:-${CAPIBARA_REQUEST:-}}"
if [[ -z "$request" ]]; then
  echo "usage: bash $0 REQUEST.json" >&2
  exit 2
fi
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
python="${PYTHON:-python}"

# shellcheck source=/dev/null
source "$here/environment.sh"
PYTHON="$python" bash "$here/check.sh" "$request"

# Several nodes: the same script on each, with NNODES, NODE_RANK 0..NNODES-1 and MASTER_ADDR, the first node's address.
# The request's folder of work lies on storage that all nodes see.
# DeepSpeed finds rank and world size in the variables that torchrun sets: no hostfile is needed.
nodes="${NNODES:-1}"
node_rank="${NODE_RANK:-0}"
processes="${NPROC_PER_NODE:-8}" # on each node
export MASTER_ADDR="${MASTER_ADDR:-127.0.0.1}"
export MASTER_PORT="${MASTER_PORT:-29500}"
export CAPIBARA_RUN="${CAPIBARA_RUN:-RUN}"
voters=(voter-0 voter-1 voter-2 voter-3)
if ((nodes * processes != 8)); then
  echo "$nodes nodes x $processes processes = $((nodes * processes)), the recipe says 8" >&2
  exit 2
fi

# On one node the supervisor starts each voter's processes itself, takes the signals, and starts again what was killed.
if ((nodes == 1)); then
  exec "$python" -m capibara_assets.training --request "$request"
fi

# Signals go on to the processes of the voter at hand, which write a resume point and leave.
child=""
asked=""
stopped=0
forward() {
  asked="$1" stopped="$2"
  if [[ -n "$child" ]]; then kill -s "$1" "$child" 2>/dev/null || true; fi
}
trap 'forward TERM 143' TERM
trap 'forward INT 130' INT

launch() {
  "$python" -m torch.distributed.run --nnodes "$nodes" --nproc-per-node "$processes" --node-rank "$node_rank" \
    --rdzv-backend c10d --rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT" --rdzv-id "$CAPIBARA_RUN-$1" --max-restarts 0 \
    -m capibara_assets.training.rank --request "$request" --voter "$1" &
  child="$!"
  if [[ -n "$asked" ]]; then kill -s "$asked" "$child" 2>/dev/null || true; fi # it came before there was a child
  local code=0
  # Looked at, not waited for: a signal that comes just before a wait would only be seen after it.
  while kill -0 "$child" 2>/dev/null; do sleep 0.5; done
  wait "$child" || code="$?"
  child=""
  return "$code"
}

failed=0
for voter in "${voters[@]}"; do
  launch "$voter" || failed=$((failed + 1)) # voters fail alone
  if ((stopped)); then exit "$stopped"; fi
done
if ((node_rank != 0)); then exit "$((failed > 0))"; fi

# Puts the finished voters together; one that is missing is tried once more.
exec "$python" -m capibara_assets.training --request "$request"
