#!/bin/sh
# Prints commands that fill a redis-server: KEYS values of 1 KB like records in JSON, of which lz4
# leaves a third. An eighth of them, numbered from 0 too, go to database 1.
# Usage: redis-fill.sh KEYS
exec awk -v keys="$1" 'BEGIN {
    srand(42)
    first = keys - int(keys / 8)
    format = "{number:%d,customer:%06d,state:waiting,country:DE,due:2026-11-%02d,"
    format = format "currency:EUR,sum:%.2f},"
    for (i = 0; i < keys; i++) {
        value = ""
        for (j = 0; j < 10; j++)
            value = value sprintf(format, i * 10 + j, rand() * 1000000, rand() * 30 + 1,
                rand() * 10000)
        if (i == first) print "SELECT 1\r"
        printf "SET key:%012d %s\r\n", i < first ? i : i - first, value
    }
}'
