# Prometheus answers queries over blocks that `promtool` has made; prints a sum of each answer.
# Usage: prometheus.sh fill; prometheus.sh run [WORDS that start a program...]
set -eu
what=$1
shift
if [ "$what" = fill ]; then
    awk 'BEGIN { for (m = 0; m < 20; m++) { printf "# TYPE metric%02d gauge\n", m
        for (s = 0; s < 100; s++) for (t = 0; t < 480; t++)
            printf "metric%02d{series=\"%03d\",group=\"%d\"} %d %d\n", m, s, s % 7,
                (m * 7919 + s * 104729 + t * t) % 65521, 1700000000 + t * 15 }
        print "# EOF" }' > metrics
    promtool tsdb create-blocks-from openmetrics metrics data > /dev/null
    echo 'global: {}' > prometheus.yml
    exit 0
fi
rm -rf copy
cp -r data copy
address=127.0.0.1:$((20000 + $$ % 20000))
"$@" prometheus --config.file=prometheus.yml --storage.tsdb.path=copy --log.level=error \
    --storage.tsdb.retention.time=100y --web.listen-address="$address" >&2 &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
tries=0
until curl -sf "http://$address/-/ready" > /dev/null; do
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] && kill -0 "$server"
    sleep 0.1
done
for round in 1 2; do
    for metric in 00 05 10 15 19; do
        curl -sf "http://$address/api/v1/query_range" -d start=1700000000 -d end=1700007200 \
            -d step=5 --data-urlencode "query=sum by (group) ({__name__=~\"metric.*\"}) +
                on(group) sum by (group) (quantile_over_time(0.9, metric$metric[10m]))" | cksum
    done
done
kill "$server"
wait "$server"
