#!/bin/sh
# Runs a PostgreSQL server of its own on `data`. With a scale, makes the tables of pgbench; without,
# four clients run queries that sort and hash, each TRANSACTIONS times, and it prints sums of what
# they found, and figures of pgbench.
# Usage: postgres.sh fill SCALE; postgres.sh run TRANSACTIONS
set -eu
what=$1 count=$2

# The server refuses to be root.
if [ "$(id -u)" -eq 0 ]; then
    [ "$what" = run ] || chown -R nobody .
    exec setpriv --reuid nobody --clear-groups sh postgres.sh "$what" "$count"
fi
programs=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
if [ "$what" = fill ]; then
    "$programs/initdb" -D data --no-sync --auth trust --username test --no-locale \
        --encoding UTF8 >said 2>&1 || { cat said >&2; exit 70; }
fi
# What is left of a server that was killed, and that nobody may have reaped yet: its locks, one of
# which ends with a key and a number of shared memory.
if [ -s data/postmaster.pid ]; then
    ipcrm -m "$(sed -n '7s/.* //p' data/postmaster.pid)" 2>/dev/null || true
    rm -f data/postmaster.pid .s.PGSQL.*
fi
"$programs/postgres" -D data -c listen_addresses= -k "$PWD" -c fsync=off -c autovacuum=off \
    -c max_parallel_workers_per_gather=0 -c jit=off -c shared_buffers=16MB >log 2>&1 &
server=$!
trap 'kill -QUIT "$server" 2>/dev/null || true' EXIT
tries=0
until "$programs/pg_isready" -q -h "$PWD"; do
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] && kill -0 "$server" || { cat log >&2; exit 70; }
    sleep 0.1
done
ask() { "$programs/psql" -h "$PWD" -U test -d postgres -X -q -At -v ON_ERROR_STOP=1 "$@"; }
bench() {
    "$programs/pgbench" -h "$PWD" -U test "$@" postgres >said 2>&1 || { cat said >&2; exit 70; }
}
stop() {
    kill -INT "$server"
    wait "$server"
}

if [ "$what" = fill ]; then
    bench -i -q -s "$count"
    ask -c 'CREATE UNLOGGED TABLE found (n int, sorted text, sum int8)' -c 'VACUUM ANALYZE' \
        -c 'CHECKPOINT'
    stop
    exit 0
fi
ask -c 'TRUNCATE found'
cat >queries <<'END'
\set n random(1, 1000)
SET work_mem = '64MB';
INSERT INTO found SELECT :n,
    (SELECT md5(string_agg(right(word, 1), '')) FROM (
        SELECT 'customer of the branch in the city number ' || aid::int8 * :n % 100003 AS word
        FROM pgbench_accounts WHERE aid <= 100000 ORDER BY word) AS sorted),
    (SELECT sum(one.n * other.n) FROM
        (SELECT n, 'order of the customer number ' || n % 30000 AS word
            FROM generate_series(1, 60000) AS n) AS one
        JOIN (SELECT n, 'order of the customer number ' || n AS word
            FROM generate_series(1, 60000) AS n) AS other
        USING (word));
END
bench -n -c 4 -t "$count" --random-seed=42 -f queries
sed -n -e 's/^latency average = \(.*\) ms$/figure latency_ms \1/p' \
    -e 's/^tps = \([0-9.]*\) .*/figure tps \1/p' said
ask -c "SELECT count(*), md5(string_agg(concat_ws(' ', n, sorted, sum), ','
    ORDER BY n, sorted, sum)) FROM found"
stop
echo "server ended with $?"
