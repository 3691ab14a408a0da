#!/bin/sh
# ports.sh: functions that tell which TCP ports of this machine are free, for the scripts that read this file with `.`.

# Whether a program listens on the port. Reads the kernel's own table, because no tool for this is on every machine.
is_taken() {
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
        awk -v port=":$(printf '%04X' "$1")" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 }
            END { exit !found }'
}

# Prints the next free port above $1, or above 1024 if there is none.
next_free_port() {
    for last in "$1" 1024; do
        while [ "$last" -lt 65535 ]; do
            last=$((last + 1))
            if ! is_taken "$last"; then
                echo "$last"
                return
            fi
        done
    done
}
