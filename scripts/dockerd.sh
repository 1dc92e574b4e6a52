# A Docker daemon where no init system runs one; for scripts that have `say`, `ask` (tests/support/ask_docker.py) and, for the daemon's files,
# $folder. Read with `.`; sh, not bash.

# Start the daemon that DOCKER_HOST names, unless it answers. No bridge: containers have no network.
start_dockerd() {
    ask ping && return
    say "starting a daemon"
    setsid nohup dockerd --data-root "$folder/data" --exec-root "$folder/exec" --host "$DOCKER_HOST" --pidfile "$folder/dockerd.pid" \
        --iptables=false --ip6tables=false --bridge=none >"$folder/dockerd.log" 2>&1 </dev/null &
    tries=0
    until ask ping; do
        tries=$((tries + 1))
        [ $tries -lt 60 ] || { say "no daemon: $(tail -n 3 "$folder/dockerd.log")"; return 1; }
        sleep 0.5
    done
}

stop_dockerd() {
    tries=0
    while [ -f "$folder/dockerd.pid" ] && kill "$(cat "$folder/dockerd.pid")" 2>/dev/null && [ $tries -lt 40 ]; do
        tries=$((tries + 1))
        sleep 0.5
    done
    umount "$folder"/exec/netns/* 2>/dev/null || true
}
