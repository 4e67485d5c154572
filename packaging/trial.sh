#!/usr/bin/env bash
# Inside the machine of trial.py: installs the packages or the bundle, runs all three managers as
# docs/operate.md says, does its drills with a program running, and removes everything. A line for
# each finding.
cd /opt/trial || exit 1
KIND="$1" # packages | bundle

ok() { # ok WHAT COMMAND ...
  local what="$1" said
  shift
  if said="$("$@" 2>&1)"; then echo "ok: $what"; else echo "WRONG: $what: $* says: $said"; fi
}
eventually() { # eventually COMMAND ...
  for _ in $(seq 300); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.2
  done
  "$@"
}
says() { # says TEXT COMMAND ...
  local text="$1"
  shift
  "$@" 2>&1 | grep -q -- "$text"
}
as_user() { su someone -c "$1"; }
# The main process is another one, and runs.
replaced() { # replaced SERVICE PID
  local now
  now="$(systemctl show --value -p MainPID "$1")"
  [[ "$now" != 0 && "$now" != "$2" ]] && systemctl is-active --quiet "$1"
}
drill() { # drill SERVICE
  local before
  before="$(systemctl show --value -p MainPID "$1")"
  systemctl kill -s KILL --kill-who=main "$1"
  ok "$1 is back after SIGKILL" eventually replaced "$1" "$before"
}
none_left() { ! pgrep -u flyt >/dev/null; }

unpack() { # In the place of the one before, if there is one.
  mkdir new && tar -xf bundle/*.tar.gz -C new || return
  [[ ! -e /opt/flyt ]] || mv /opt/flyt old || return
  mv new/* /opt/flyt && rmdir new
}
put_in() {
  if [[ "$KIND" == packages ]]; then
    dpkg -i packages/*.deb
    return
  fi
  unpack && install -d -m 0755 /etc/flyt &&
    useradd --system --user-group --no-create-home --home-dir /var/lib/flyt \
      --shell /usr/sbin/nologin flyt
}
upgrade() {
  if [[ "$KIND" == packages ]]; then
    dpkg -i packages/*.deb
    return
  fi
  unpack && for unit in cluster node client; do
    systemctl restart "flyt-$unit-manager" || return
  done
}
take_out() {
  if [[ "$KIND" == packages ]]; then
    dpkg --purge flyt-node flyt-cluster flyt-client flyt-cli
    return
  fi
  flyt client restore && systemctl kill flyt-node-manager &&
    systemctl stop flyt-{client,node,cluster}-manager &&
    systemctl disable flyt-{client,node,cluster}-manager && rm -rf /opt/flyt old /var/lib/flyt
}

UNITS=""
if [[ "$KIND" == bundle ]]; then
  UNITS=/opt/flyt/systemd/
  export PATH="/opt/flyt/bin:$PATH"
fi
useradd --create-home someone
ok "the $KIND can be installed" put_in
for unit in cluster node client; do
  ok "the unit of $unit is right" systemd-analyze verify "${UNITS}flyt-$unit-manager.service"
done

flytctl ca init --dir ca >/dev/null
flytctl ca issue cluster --role admin --host localhost --dir ca >/dev/null
flytctl ca issue gpu-1 --role node --host localhost --dir ca >/dev/null
flytctl ca issue vm-7 --role vm --dir ca >/dev/null
for name in cluster gpu-1 vm-7; do
  install -m 0640 -o root -g flyt "ca/$name.crt" "ca/$name.key" /etc/flyt/
done
install -m 0640 -o root -g flyt ca/ca.crt /etc/flyt/
certificate() { # certificate NAME
  printf 'cert = "/etc/flyt/%s.crt"\nkey = "/etc/flyt/%s.key"\nca = "/etc/flyt/ca.crt"\n' "$1" "$1"
}
{
  printf '[api]\ntcp = "127.0.0.1:7700"\n'
  certificate cluster
  printf '[nodes]\nreport_every = 1\n'
} >/etc/flyt/cluster.toml
{
  printf '[node]\nname = "gpu-1"\n[gpus]\nsoft = 1\n[api]\ntcp = "localhost:7701"\n'
  certificate gpu-1
  printf '[cluster]\naddresses = ["localhost:7700"]\nadvertise = "localhost:7701"\n'
  printf 'host = "localhost"\n'
} >/etc/flyt/node.toml
{
  printf '[cluster]\naddresses = ["localhost:7700"]\n'
  certificate vm-7
  printf '[vm]\nname = "vm-7"\nhost = "localhost"\n'
} >/etc/flyt/client.toml
ok "the configuration is right" flytctl config check /etc/flyt/cluster.toml

for unit in cluster node client; do
  systemctl --quiet enable --now "${UNITS}flyt-$unit-manager.service"
done
ok "the node is ready" eventually says ready flytctl nodes
ok "a VM is known" flytctl vm set vm-7 --sms 8 --memory 256M
ok "programs find the library" flyt client install
ok "a user's program has a GPU" as_user "timeout 60 python3 /opt/trial/program.py 3"

as_user "timeout 120 python3 /opt/trial/program.py 600" >program.log 2>&1 &
program=$!
ok "a program begins" eventually grep -q begun program.log
for unit in cluster node client; do drill "flyt-$unit-manager"; done
ok "the lease is still there" eventually says ready flytctl leases
ok "the server is replaced under the program" systemctl reload flyt-node-manager
ok "that is told" eventually says server-upgraded flytctl --node unix:///run/flyt/node.sock events
ok "the $KIND can be upgraded" upgrade
ok "the node is ready again" eventually says ready flytctl nodes
ok "a second program has a GPU" as_user "timeout 60 python3 /opt/trial/program.py 3"
touch /opt/trial/enough
wait "$program"
ok "the program was right all the time" says right cat program.log
ok "all is well" eventually flytctl health

ok "the $KIND can be removed" take_out
ok "no process is left" eventually none_left
ok "no state is left" test ! -e /var/lib/flyt
echo "the end"
