#!/bin/sh
# Has a redis-server save KEYS values of the file `data` while clients read those of database 0 and
# change those of database 1, batch after batch until it has saved. Prints digests of what clients
# do not change and of what was saved; figures are the means of batches and the time of the save.
# Usage: redis.sh KEYS
set -eu
changed=$(($1 / 8))
read=$(($1 - changed))
batch=4000

redis-server --port 0 --unixsocket "$PWD/socket" --save "" --appendonly no --dir "$PWD" \
    --enable-debug-command yes --logfile "$PWD/log" &
server=$!
trap 'kill -KILL "$server" 2>/dev/null || true' EXIT
ask() { redis-cli -s "$PWD/socket" "$@"; }
tries=0
until [ "$(ask PING 2>/dev/null)" = PONG ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] || { cat log >&2; exit 70; }
    sleep 0.1
done
ask --pipe <data | tail -n 1
ask DBSIZE
before=$(ask DEBUG DIGEST)
echo "$before"

# The two kinds of requests at a time, each with four clients.
clients() { redis-benchmark -s "$PWD/socket" -c 4 -n "$batch" --precision 3 --csv "$@"; }
rm -f saved batches
started=$(date +%s%N)
ask BGSAVE >/dev/null
{
    while ask INFO persistence | grep -q 'rdb_bgsave_in_progress:1'; do sleep 0.05; done
    date +%s%N >saved
} &
saving=$!
while :; do
    clients -t get -r "$read" >gets &
    clients -t set -r "$changed" -d 1000 --dbnum 1 >sets
    wait $!
    grep -h '^"[GS]ET"' gets sets >>batches
    [ ! -s saved ] || break
done
wait "$saving"
ask INFO persistence | grep 'rdb_last_bgsave_status' | tr -d '\r'
# The columns are those of its head: rate, then mean, least, p50, p95, p99 and most in ms.
awk -F '","|"' '{ p50 += $6; p99 += $8 }
    END { printf "figure p50_ms %.3f\nfigure p99_ms %.3f\n", p50 / NR, p99 / NR }' batches
awk -v from="$started" '{ printf "figure save_s %.3f\n", ($1 - from) / 1e9 }' saved

ask -n 1 DBSIZE
ask -n 1 FLUSHDB
ask DEBUG DIGEST
ask DEBUG RELOAD NOSAVE
[ "$(ask DEBUG DIGEST)" = "$before" ] && echo "the saved state is the one at the fork"
ask SHUTDOWN NOSAVE
wait "$server"
echo "server ended with $?"
